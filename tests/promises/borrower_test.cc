#include "tests/promises/situation.h"

// Whoever borrowed what is guaranteed to others, and does not give it back.

namespace gpumem::core::promises {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Borrower : public Situation {
 protected:
  static constexpr std::uint32_t kAnn = 1;
  static constexpr std::uint32_t kBob = 2;
  static constexpr std::uint32_t kCid = 3;

  // Ann is promised half of the device, bob nothing.
  void SetUp() override {
    begin(ending_policy({user("ann", kAnn, {quota(gibibytes(4), gibibytes(8))}),
                         user("bob", kBob, {quota({}, gibibytes(8))})}));
  }
  void expect_ended(std::int64_t pid) {
    EXPECT_FALSE(world->lives(pid));
    EXPECT_THAT(signalled(), ElementsAre(pid));
  }
};

TEST_F(Borrower, BorrowerThatLeavesWhenItIsAskedIsEnded) {
  Process& bob = come_with(gibibytes(8), kBob, {.ignores_pressure = true, .leaves_lane = true});
  const std::int64_t pid = bob.pid;
  Process& ann = come(kAnn);
  const RequestId claim = world->grow(ann, gibibytes(4));
  world->pass(kDeadline - std::chrono::milliseconds(100));
  world->close_lane(bob, SessionEnd::kLost, false);
  world->pass(kPromised - kDeadline);
  EXPECT_TRUE(world->is_granted(claim));
  expect_ended(pid);
}

// What it gave back is still being proved free when the next claim comes, and when its deadline passes.
TEST_F(Borrower, BorrowerThatGaveBackInTimeIsAskedAnewForTheNextClaim) {
  begin(ending_policy({user("ann", kAnn, {quota(gibibytes(4), gibibytes(8))}),
                       user("bob", kBob, {quota({}, gibibytes(8))}),
                       user("cid", kCid, {quota(gibibytes(2), gibibytes(8))})}));
  Process& bob = come_with(gibibytes(8), kBob, {.ignores_pressure = true});
  Process& ann = come(kAnn);
  Process& cid = come(kCid);
  ASSERT_TRUE(world->slice(cid, 0));
  world->grow(ann, gibibytes(4));
  world->pass(kDeadline - std::chrono::nanoseconds(1));
  world->give_back(bob, 0, gibibytes(4));
  world->grow(cid, gibibytes(2));
  world->pass(kDeadline - std::chrono::milliseconds(100));
  EXPECT_THAT(signalled(), IsEmpty());
  world->give_back(bob, 0, gibibytes(2));
  world->pass(std::chrono::seconds(30));
  EXPECT_THAT(signalled(), IsEmpty());
}

TEST_F(Borrower, MemoryThatWasKeptIsThereAsSoonAsItsProcessHasEnded) {
  Process& bob = come_with(gibibytes(8), kBob, {.keeps_returned = true});
  world->give_back(bob, 0, gibibytes(8));
  world->pass(std::chrono::minutes(1));  // the pauses between two proofs are 2 s by now
  Process& ann = come(kAnn);
  const RequestId claim = world->grow(ann, gibibytes(4));
  const TimePoint next_proof = *world->broker.next_deadline();
  world->pass(next_proof - world->now + std::chrono::milliseconds(200));
  world->exit(bob);
  world->pass(std::chrono::milliseconds(100));
  EXPECT_TRUE(world->is_granted(claim));
}

TEST_F(Borrower, UnendableSessionHoldsNoBorrowedGuarantee) {
  Process& bob = come(kBob, {.ignores_pressure = true, .cannot_be_ended = true});
  const RequestId too_much = world->grow(bob, gibibytes(6), std::chrono::milliseconds(100));
  world->pass(std::chrono::seconds(1));
  EXPECT_FALSE(world->is_granted(too_much));
  const RequestId unpromised = world->grow(bob, gibibytes(4));
  world->pass(std::chrono::milliseconds(200));
  EXPECT_TRUE(world->is_granted(unpromised));
  Process& ann = come(kAnn);
  const RequestId claim = world->grow(ann, gibibytes(4));
  world->pass(std::chrono::milliseconds(200));
  EXPECT_TRUE(world->is_granted(claim)) << "nobody has to give anything back for it";
  EXPECT_THAT(signalled(), IsEmpty());
}

TEST_F(Borrower, ClaimIsAskedOfThoseWhoCanBeEndedAlone) {
  begin(ending_policy({user("ann", kAnn, {quota(gibibytes(4), gibibytes(8))}),
                       user("bob", kBob, {quota({}, gibibytes(8))}),
                       user("cid", kCid, {quota({}, gibibytes(8))})}));
  come_with(gibibytes(4), kBob, {.ignores_pressure = true, .cannot_be_ended = true});
  const std::int64_t endable = come_with(gibibytes(4), kCid).pid;
  Process& ann = come(kAnn);
  const RequestId claim = world->grow(ann, gibibytes(4));
  world->pass(kDeadline + std::chrono::milliseconds(100));
  EXPECT_TRUE(world->is_granted(claim));
  EXPECT_THAT(world->asked_ever(), ElementsAre(endable));
}

TEST_F(Borrower, EndableSessionOfTheSameTenantIsEndedInPlaceOfTheUnendable) {
  come_with(gibibytes(4), kBob, {.ignores_pressure = true, .cannot_be_ended = true});
  const std::int64_t endable = come_with(gibibytes(4), kBob, {.ignores_pressure = true}).pid;
  Process& ann = come(kAnn);
  const RequestId claim = world->grow(ann, gibibytes(4));
  world->pass(kPromised);
  EXPECT_TRUE(world->is_granted(claim));
  expect_ended(endable);
}

}  // namespace
}  // namespace gpumem::core::promises
