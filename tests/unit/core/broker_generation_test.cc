#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// A region whose content changes: who has it commits, who follows it is told.

namespace gpumem::core {
namespace {

using std::chrono::seconds;

Policy generation_policy() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64))};
  policy.tenants = {user("ann", 1, {{{}, mebibytes(64)}}), user("bob", 2, {{{}, mebibytes(64)}})};
  return policy;
}

class BrokerGeneration : public testing::Test {
 protected:
  BrokerGeneration() {
    publisher = machine.connect(2);
    mate = machine.connect(2);
    ann = machine.connect(1);
    slice = machine.slice(publisher);
    grant = machine.get(publisher, slice, mebibytes(2));
    region = publish();
  }
  RegionId publish(Sharing sharing = Sharing::kPrivate) {
    RegionTerms terms;
    terms.name = "cache";
    terms.sharing = sharing;
    const auto version =
        machine.broker.publish(publisher, slice, Machine::leases_of(grant), terms, machine.now);
    machine.collect();
    return version ? *version : RegionId{};
  }
  Result<MappedRegion> map(SessionId session) {
    return machine.broker.map_region(session, "bob", "cache", Regions::kNewest, machine.now);
  }
  Result<std::uint64_t> commit(SessionId session) {
    auto generation = machine.broker.commit_region(session, region, machine.now);
    machine.collect();
    return generation;
  }
  RequestId await(SessionId session, std::uint64_t after, Duration wait = seconds(60)) {
    const RequestId id = machine.request_ids.next();
    machine.broker.await_generation(id, session, {region, after}, wait, machine.now);
    machine.collect();
    return id;
  }
  bool waits(RequestId id) const { return !machine.generations.contains(id); }
  std::uint64_t told(RequestId id) const { return machine.generations.at(id).value(); }
  Code code(RequestId id) const { return machine.generations.at(id).error().code; }
  std::uint64_t now_of(SessionId session) { return told(await(session, 0, seconds(0))); }

  Machine machine{generation_policy()};
  SessionId publisher, mate, ann;
  SliceId slice;
  Grant grant;
  RegionId region;
};

TEST_F(BrokerGeneration, IsNoneAtFirstAndOneMoreWithEachCommit) {
  EXPECT_EQ(now_of(mate), 0U);
  EXPECT_EQ(commit(publisher).value(), 1U);
  EXPECT_EQ(commit(publisher).value(), 2U);
  EXPECT_EQ(now_of(mate), 2U);
}

TEST_F(BrokerGeneration, IsToldToWhoWaitsForALaterOne) {
  ASSERT_TRUE(map(mate));
  const RequestId first = await(mate, 0), second = await(mate, 1);
  EXPECT_TRUE(waits(first));
  EXPECT_EQ(machine.broker.region_due(first), machine.now + seconds(60));
  ASSERT_TRUE(commit(publisher));
  EXPECT_EQ(told(first), 1U);
  EXPECT_TRUE(waits(second)) << "it knows this one";
  ASSERT_TRUE(commit(mate)) << "by a reader that has it, too";
  EXPECT_EQ(told(second), 2U);
  EXPECT_EQ(told(await(mate, 1)), 2U) << "what is there already is not waited for";
  EXPECT_EQ(machine.broker.region_due(second), std::nullopt);
}

TEST_F(BrokerGeneration, IsCommittedByThoseAloneWhoHaveTheRegion) {
  EXPECT_EQ(commit(mate).error().code, Code::kFailedPrecondition) << "it may map it, and has not";
  const auto mapped = map(mate);
  ASSERT_TRUE(mapped);
  EXPECT_TRUE(commit(mate));
  ASSERT_TRUE(machine.broker.release_import(mate, mapped->imported.id, machine.now));
  EXPECT_EQ(commit(mate).error().code, Code::kFailedPrecondition) << "it has no more";
  EXPECT_EQ(commit(SessionId{999}).error().code, Code::kUnauthenticated);
  EXPECT_EQ(now_of(publisher), 1U);
}

// Nobody learns of others' regions by following them.
TEST_F(BrokerGeneration, IsAsIfThereWereNoneForWhomTheRegionIsNotFor) {
  const RequestId refused = await(ann, 0);
  ASSERT_FALSE(waits(refused));
  EXPECT_EQ(code(refused), Code::kNotFound);
  EXPECT_EQ(commit(ann).error().code, Code::kNotFound);
  const std::string words = machine.generations.at(refused).error().message;
  region = RegionId{region.value + 1};
  const RequestId none = await(ann, 0);
  EXPECT_EQ(machine.generations.at(none).error().message.size(), words.size());
}

TEST_F(BrokerGeneration, OfARegionThatIsSharedIsFollowedByOtherTenants) {
  region = publish(Sharing::kPublic);
  const RequestId waiting = await(ann, 0);
  ASSERT_TRUE(commit(publisher));
  EXPECT_EQ(told(waiting), 1U);
}

TEST_F(BrokerGeneration, IsNotCommittedByOtherTenants) {
  region = publish(Sharing::kPublic);
  ASSERT_TRUE(map(ann));
  EXPECT_EQ(commit(ann).error().code, Code::kPermissionDenied) << "whether or not it can write to it";
  EXPECT_EQ(now_of(ann), 0U);
}

TEST_F(BrokerGeneration, IsNotFollowedBeyondTheRegionsEnd) {
  const RequestId waiting = await(mate, 0);
  ASSERT_TRUE(machine.broker.remove_region(mate, "cache", Regions::kNewest, machine.now));
  machine.collect();
  ASSERT_FALSE(waits(waiting));
  EXPECT_EQ(code(waiting), Code::kNotFound);
  EXPECT_EQ(commit(publisher).error().code, Code::kNotFound);
}

TEST_F(BrokerGeneration, IsNotFollowedBeyondItsMemory) {
  const RequestId waiting = await(mate, 0);
  machine.die(publisher);
  ASSERT_FALSE(waits(waiting));
  EXPECT_EQ(code(waiting), Code::kNotFound);
}

TEST_F(BrokerGeneration, WaitedForInVainSaysSo) {
  const RequestId waiting = await(mate, 0, seconds(5));
  machine.pass_in_steps(seconds(4));
  EXPECT_TRUE(waits(waiting));
  machine.pass_in_steps(seconds(1));
  ASSERT_FALSE(waits(waiting));
  EXPECT_EQ(code(waiting), Code::kDeadlineExceeded);
}

TEST_F(BrokerGeneration, WaitIsWithdrawnAndEndsWithItsSessionAndItsBroker) {
  const RequestId withdrawn = await(mate, 0);
  machine.cancel(withdrawn);
  const RequestId of_dead = await(mate, 0);
  machine.die(mate);
  ASSERT_TRUE(commit(publisher));
  EXPECT_TRUE(waits(withdrawn));
  EXPECT_TRUE(waits(of_dead));
  const RequestId last = await(publisher, 1);
  machine.broker.drain();
  machine.collect();
  ASSERT_FALSE(waits(last));
  EXPECT_EQ(code(last), Code::kUnavailable);
}

TEST_F(BrokerGeneration, IsWaitedForWithABoundForEachSession) {
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < GenerationWaits::kMostOfSession; ++i) ids.push_back(await(mate, 0));
  const RequestId beyond = await(mate, 0);
  ASSERT_FALSE(waits(beyond));
  EXPECT_EQ(code(beyond), Code::kResourceExhausted);
  EXPECT_TRUE(waits(await(publisher, 0))) << "others have theirs";
  machine.cancel(ids.front());
  EXPECT_TRUE(waits(await(mate, 0)));
}

TEST_F(BrokerGeneration, IsWaitedForWithABoundForEachTenant) {
  std::vector<SessionId> sessions;
  for (std::size_t left = GenerationWaits::kMostOfTenant; left > 0; left -= GenerationWaits::kMostOfSession) {
    sessions.push_back(machine.connect(2));
    for (std::size_t i = 0; i < GenerationWaits::kMostOfSession; ++i) await(sessions.back(), 0);
  }
  const RequestId beyond = await(mate, 0);
  ASSERT_FALSE(waits(beyond));
  EXPECT_EQ(code(beyond), Code::kResourceExhausted);
  machine.die(sessions.front());
  EXPECT_TRUE(waits(await(mate, 0)));
}

TEST_F(BrokerGeneration, GoesOnAfterARestart) {
  ASSERT_TRUE(commit(publisher));
  ASSERT_TRUE(commit(publisher));
  machine.restart(generation_policy(), {grant});
  ASSERT_TRUE(machine.resume(publisher, {slice}, {grant}));
  const SessionId reader = machine.connect(2);
  EXPECT_EQ(now_of(reader), 2U);
  EXPECT_EQ(commit(publisher).value(), 3U);
}

}  // namespace
}  // namespace gpumem::core
