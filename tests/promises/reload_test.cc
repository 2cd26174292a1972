#include "tests/promises/situation.h"

// Guarantees that are raised, and limits that are lowered, while others use the memory.

namespace gpumem::core::promises {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A group that may have 4 of the 8 GiB.
class RaisedGuarantee : public Situation {
 protected:
  static constexpr std::uint32_t kClaimer = 1;
  static constexpr std::uint32_t kUser = 2;
  static constexpr std::uint32_t kAnother = 3;

  static Policy policy(Bytes guarantee, Bytes limit = gibibytes(4)) {
    return ending_policy({parent("lab", {quota({}, limit)}), parent("room", {quota({}, limit)}, "lab"),
                          user("claimer", kClaimer, {quota(guarantee, gibibytes(4))}, "room"),
                          user("user", kUser, {quota({}, gibibytes(4))}, "room"),
                          user("another", kAnother, {quota({}, gibibytes(4))})});
  }
};

TEST_F(RaisedGuarantee, IsMetBelowAFullGroupAlthoughMemoryIsFreeOutside) {
  begin(policy({}));
  const std::int64_t user = come_with(gibibytes(4), kUser, {.ignores_pressure = true}).pid;
  come_with(gibibytes(1), kAnother, {.ignores_pressure = true});
  ASSERT_TRUE(world->apply(policy(gibibytes(2))));
  const RequestId claim = world->grow(come(kClaimer), gibibytes(2));
  world->pass(kPromised);
  EXPECT_TRUE(world->is_granted(claim));
  EXPECT_THAT(signalled(), ElementsAre(user)) << "nobody outside the group can help";
}

TEST_F(RaisedGuarantee, IsMetByMembersThatGiveBack) {
  begin(policy({}));
  Process& user = come_with(gibibytes(4), kUser);
  ASSERT_TRUE(world->apply(policy(gibibytes(2))));
  EXPECT_EQ(world->asked(user), Bytes{}) << "nobody claims it yet";
  const RequestId claim = world->grow(come(kClaimer), gibibytes(1));
  EXPECT_EQ(world->asked(user), gibibytes(1));
  world->pass(kPromised);
  EXPECT_TRUE(world->is_granted(claim));
  EXPECT_LE(world->mapped(user), gibibytes(3));
  EXPECT_THAT(signalled(), IsEmpty());
}

TEST_F(RaisedGuarantee, IsMetWhereTheDeviceIsFullToo) {
  begin(policy({}));
  Process& user = come_with(gibibytes(4), kUser);
  Process& another = come_with(gibibytes(4), kAnother);
  ASSERT_TRUE(world->apply(policy(gibibytes(2))));
  const RequestId claim = world->grow(come(kClaimer), gibibytes(2));
  EXPECT_EQ(world->asked(user), gibibytes(2));
  EXPECT_EQ(world->asked(another), Bytes{}) << "one return serves both";
  world->pass(kPromised);
  EXPECT_TRUE(world->is_granted(claim));
}

TEST_F(RaisedGuarantee, IsMetBelowAGroupThatIsInDebtAsWell) {
  begin(policy({}));
  Process& user = come_with(gibibytes(4), kUser);
  ASSERT_TRUE(world->apply(policy(gibibytes(2), gibibytes(3))));
  EXPECT_EQ(world->asked(user), gibibytes(1));
  const RequestId claim = world->grow(come(kClaimer), gibibytes(2));
  EXPECT_EQ(world->asked(user), gibibytes(3));
  world->pass(kPromised);
  EXPECT_TRUE(world->is_granted(claim));
  EXPECT_LE(world->mapped(user), gibibytes(1));
}

TEST_F(RaisedGuarantee, IsDeniedInTimeWhereNobodyIsEnded) {
  Policy before = policy({});
  Policy after = policy(gibibytes(2));
  before.devices[0].reclaim.escalation = Escalation::kDeny;
  after.devices[0].reclaim.escalation = Escalation::kDeny;
  begin(before);
  come_with(gibibytes(4), kUser, {.ignores_pressure = true});
  ASSERT_TRUE(world->apply(after));
  const RequestId claim = world->grow(come(kClaimer), gibibytes(2));
  world->pass(kPromised);
  EXPECT_TRUE(world->is_answered(claim));
  EXPECT_FALSE(world->is_granted(claim));
}

}  // namespace
}  // namespace gpumem::core::promises
