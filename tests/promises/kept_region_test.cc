#include "tests/promises/situation.h"

// Regions that outlive their processes, beyond what their tenant is guaranteed, and readers of other tenants
// that keep them.

namespace gpumem::core::promises {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class KeptRegion : public Situation {
 protected:
  static constexpr std::uint32_t kAnn = 1;
  static constexpr std::uint32_t kBob = 2;
  static constexpr std::uint32_t kCid = 3;
  static constexpr std::uint32_t kDan = 4;
  static constexpr Traits kKeeper{.ignores_pressure = true, .ignores_sigterm = true};

  // Ann is promised half of the device, the others nothing.
  void SetUp() override {
    begin(ending_policy(
        {user("ann", kAnn, {quota(gibibytes(4), gibibytes(8))}), user("bob", kBob, {quota({}, gibibytes(8))}),
         user("cid", kCid, {quota({}, gibibytes(8))}), user("dan", kDan, {quota({}, gibibytes(8))})}));
  }
  /// Bob's memory is a kept region, which his process leaves behind.
  RegionId kept(Bytes bytes) {
    Process& bob = come_with(bytes, kBob);
    const RegionId region = publish(bob, true);
    world->exit(bob);
    world->pass(std::chrono::milliseconds(200));
    return region;
  }
  RegionId publish(Process& process, bool keep) {
    const auto region = world->publish(process, 0, gibibytes(8), keep);
    EXPECT_TRUE(region);
    return region.value_or(RegionId{});
  }
  Process& reader(std::uint32_t uid, RegionId region, Traits traits = {}) {
    Process& process = come(uid, traits);
    EXPECT_TRUE(world->map_region(process, region));
    return process;
  }
  RequestId claim(Bytes bytes = gibibytes(4)) { return world->grow(come(kAnn), bytes); }
  void expect_claim_is_granted(Duration within = kPromised) {
    const RequestId request = claim();
    world->pass(within);
    EXPECT_TRUE(world->is_granted(request));
  }
};

TEST_F(KeptRegion, GivesWayToAClaimAtOnce) {
  kept(gibibytes(8));
  expect_claim_is_granted(kDeadline / 2);
  EXPECT_THAT(world->regions(), IsEmpty());
  EXPECT_THAT(signalled(), IsEmpty());
}

TEST_F(KeptRegion, IsSafeWithinItsTenantsGuarantee) {
  Process& ann = come_with(gibibytes(4), kAnn);
  const RegionId region = publish(ann, true);
  world->exit(ann);
  Process& bob = come(kBob);
  const RequestId all = world->grow(bob, gibibytes(8), std::chrono::seconds(30));
  world->pass(std::chrono::minutes(1));
  EXPECT_FALSE(world->is_granted(all));
  EXPECT_TRUE(world->regions().contains(region));
}

TEST_F(KeptRegion, ReaderOfAnotherTenantThatUnmapsIsNotEnded) {
  const std::int64_t cid = reader(kCid, kept(gibibytes(8))).pid;
  expect_claim_is_granted();
  EXPECT_TRUE(world->lives(cid));
  EXPECT_THAT(signalled(), IsEmpty());
}

TEST_F(KeptRegion, ReaderOfAnotherTenantThatKeepsItIsEnded) {
  const std::int64_t cid = reader(kCid, kept(gibibytes(8)), kKeeper).pid;
  expect_claim_is_granted();
  EXPECT_FALSE(world->lives(cid));
  EXPECT_THAT(signalled(), ElementsAre(cid));
}

TEST_F(KeptRegion, ReaderThatSaysItHasUnmappedItAndHasNotIsEnded) {
  const std::int64_t cid = reader(kCid, kept(gibibytes(8)), {.keeps_returned = true}).pid;
  expect_claim_is_granted();
  EXPECT_THAT(signalled(), ElementsAre(cid));
}

TEST_F(KeptRegion, SuspendedReaderOfAnotherTenantIsEnded) {
  Process& cid = reader(kCid, kept(gibibytes(8)), {.suspends = true});
  const std::int64_t pid = cid.pid;
  world->suspend(cid);
  expect_claim_is_granted();
  EXPECT_THAT(signalled(), ElementsAre(pid));
}

TEST_F(KeptRegion, ReaderThatLeavesItsLaneAndKeepsItIsEnded) {
  Process& cid = reader(kCid, kept(gibibytes(8)), {.leaves_lane = true});
  const std::int64_t pid = cid.pid;
  world->close_lane(cid, SessionEnd::kReleased, false);
  expect_claim_is_granted();
  EXPECT_THAT(signalled(), ElementsAre(pid));
}

TEST_F(KeptRegion, ReadersOfTwoTenantsThatKeepItAreEndedTogether) {
  const RegionId region = kept(gibibytes(8));
  const std::int64_t cid = reader(kCid, region, kKeeper).pid;
  const std::int64_t dan = reader(kDan, region, kKeeper).pid;
  expect_claim_is_granted();
  EXPECT_THAT(signalled(), UnorderedElementsAre(cid, dan));
}

// It gives way in time, so what the reader keeps is the reader's for what is left of the time.
TEST_F(KeptRegion, ReaderIsEndedWhosePublisherUnmapsAtTheLastMoment) {
  Process& bob = come_with(gibibytes(8), kBob, {.ignores_pressure = true});
  const std::int64_t cid = reader(kCid, publish(bob, true), kKeeper).pid;
  const RequestId request = claim();
  world->pass(kDeadline - std::chrono::milliseconds(100));
  world->give_back(bob, 0, gibibytes(8));
  world->pass(kPromised - kDeadline + std::chrono::milliseconds(100));
  EXPECT_TRUE(world->is_granted(request));
  EXPECT_THAT(signalled(), ElementsAre(cid));
}

TEST_F(KeptRegion, PublisherAndReaderThatKeepItAreEndedTogether) {
  Process& bob = come_with(gibibytes(8), kBob, kKeeper);
  const std::int64_t publisher = bob.pid;
  const std::int64_t cid = reader(kCid, publish(bob, true), kKeeper).pid;
  expect_claim_is_granted();
  EXPECT_THAT(signalled(), UnorderedElementsAre(publisher, cid));
}

// What the driver could not prove free as long as the publisher lived is not the reader's.
TEST_F(KeptRegion, ReaderThatHasUnmappedIsNotEndedForWhatItsPublisherKeptInSecret) {
  Process& bob = come_with(gibibytes(8), kBob, {.keeps_returned = true, .ignores_sigterm = true});
  const std::int64_t publisher = bob.pid;
  Process& cid = reader(kCid, publish(bob, false));
  const std::int64_t unmapped = cid.pid;
  EXPECT_TRUE(world->unmap_one_region(cid, 0));
  expect_claim_is_granted();
  EXPECT_TRUE(world->lives(unmapped));
  EXPECT_THAT(signalled(), ElementsAre(publisher));
}

// Who maps it has it, and answers for it.
TEST_F(KeptRegion, ProcessOfItsTenantThatTakesItUpAndKeepsItIsEnded) {
  const RegionId region = kept(gibibytes(8));
  const std::int64_t next = reader(kBob, region, kKeeper).pid;
  expect_claim_is_granted();
  EXPECT_THAT(signalled(), ElementsAre(next));
}

TEST_F(KeptRegion, IsChargedToTheReaderThatHasItWhenItIsRemoved) {
  const RegionId region = kept(gibibytes(4));
  Process& cid = reader(kCid, region);
  world->remove_region(region);
  EXPECT_EQ(world->broker.accounts().at({"cid", 0}).leases, gibibytes(4));
  EXPECT_TRUE(world->broker.accounts().at({"bob", 0}).leases.is_zero());
  EXPECT_GT(world->passed(), 0u);
  world->exit(cid);
  world->pass(std::chrono::seconds(1));
  EXPECT_TRUE(world->broker.accounts().at({"cid", 0}).leases.is_zero());
}

}  // namespace
}  // namespace gpumem::core::promises
