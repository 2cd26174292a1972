// Room for contexts, which programs announce: what the driver lacks for one comes out of the pool, and goes
// back.
#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using Outcome = ContextDone::Outcome;

constexpr Bytes kOneContext = mebibytes(8);
constexpr Bytes kTwoContexts = mebibytes(16);

// The pool has 64 of 256 MiB. Without a figure, a context is expected to take a thirty-second of the device.
// A pool that grows leaves 12 MiB free in any case.
Policy with_contexts() {
  Policy policy = small_policy();
  policy.devices[0].total = mebibytes(256);
  policy.past_broker.allowance = kTwoContexts;
  return policy;
}

struct BrokerContext : testing::Test {
  explicit BrokerContext(const Policy& policy = with_contexts()) : machine(policy) {
    leave_free(mebibytes(12));
  }

  void expect_whole_once_others_leave() {
    machine.driver.restore(0);
    machine.pass_in_steps(Store::kLongestPause);
    EXPECT_EQ(missing(), Bytes{});
  }
  /// Other programs take all of the device but this and the pool.
  void leave_free(Bytes bytes) { machine.driver.steal(0, machine.driver.room(0) - bytes); }
  RequestId announce(SessionId session, Duration wait = {}) {
    const RequestId id = machine.request_ids.next();
    machine.broker.announce_context(id, session, {"GPU-0", wait}, machine.now);
    machine.collect();
    return id;
  }
  void done(SessionId session, Outcome outcome = Outcome::kMade) {
    machine.broker.context_done(session, {"GPU-0", outcome}, machine.now);
    machine.collect();
  }
  void observe(std::uint32_t uid, Bytes used) {
    machine.broker.begin_observation(0);
    Observation seen;
    seen.broker = mebibytes(64) - missing();
    seen.used = seen.broker + used;
    seen.processes.emplace_back().pid = peer_of(uid).pid;
    seen.processes.back().used = used;
    machine.broker.observe(seen, machine.now);
    machine.collect();
  }
  DeviceView view() const { return machine.broker.devices()[0]; }
  Bytes missing() const { return view().missing; }
  Bytes outside(const std::string& tenant) const {
    for (const TenantView& one : machine.broker.tenants())
      if (one.name == tenant) return one.outside;
    return {};
  }

  Machine machine;
};

TEST_F(BrokerContext, IsMadeAtOnceWhereTheDriverHasRoom) {
  const SessionId bob = machine.connect(2);
  EXPECT_TRUE(machine.is_granted(announce(bob)));
  EXPECT_EQ(missing(), Bytes{});
  EXPECT_EQ(outside("bob"), Bytes{});
}

TEST_F(BrokerContext, TakesOfThePoolWhatTheDriverLacksUntilItIsMeasured) {
  const SessionId bob = machine.connect(2);
  EXPECT_TRUE(machine.is_granted(announce(bob)));
  const SessionId other = machine.connect(2);
  EXPECT_TRUE(machine.is_granted(announce(other))) << "the first one still needs its room";
  EXPECT_EQ(missing(), mebibytes(4));
  EXPECT_EQ(view().contexts, mebibytes(4));
  EXPECT_EQ(outside("bob"), kOneContext) << "one at a time is free of charge";
  EXPECT_EQ(machine.driver.room(0), kTwoContexts);
  machine.pass_in_steps(seconds(5));
  EXPECT_EQ(machine.driver.room(0), kTwoContexts) << "the pool stays off";

  leave_free(kOneContext);
  done(bob);
  EXPECT_EQ(machine.looks, 0);
  leave_free({});
  done(other);
  EXPECT_EQ(machine.looks, 1) << "for what was the pool's";
  observe(2, kTwoContexts);
  EXPECT_EQ(outside("bob"), kTwoContexts);
  EXPECT_EQ(missing(), mebibytes(4)) << "the contexts have it";
  machine.die(bob);
  machine.die(other);
  machine.driver.restore(0);
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerContext, ExpectsWhatTheFirstOneHasTaken) {
  const SessionId bob = machine.connect(2);
  announce(bob);
  leave_free(mebibytes(6));
  done(bob);
  machine.pass(ContextRoom::kFresh);
  observe(2, mebibytes(6));
  EXPECT_TRUE(machine.is_granted(announce(bob)));
  EXPECT_EQ(missing(), Bytes{}) << "6 MiB are free";
}

TEST_F(BrokerContext, MayBeMadeFasterThanTheyAreMeasured) {
  const SessionId bob = machine.connect(2);
  const std::size_t most = machine.broker.policy().max_requests_per_session;
  leave_free(kOneContext);
  for (std::size_t i = 0; i <= 2 * most; ++i) {
    ASSERT_TRUE(machine.is_granted(announce(bob))) << i;
    done(bob);
  }
  for (std::size_t i = 0; i < most; ++i) announce(bob, seconds(30));
  EXPECT_TRUE(machine.is_granted(announce(bob))) << "the driver decides";
}

TEST_F(BrokerContext, NeverTakesWhatAGuaranteeNeedsAndSaysWhy) {
  leave_free(mebibytes(2));
  const SessionId bob = machine.connect(2);
  const Grant most = machine.get(bob, machine.slice(bob), mebibytes(44));
  const SessionId other = machine.connect(2);
  EXPECT_TRUE(machine.is_granted(announce(other))) << "the driver has some, and may try";
  EXPECT_EQ(view().contexts_refused, 0U);
  done(other, Outcome::kOutOfMemory);
  const RequestId refused = announce(other);
  EXPECT_THAT(machine.why(refused),
              HasSubstr("tenant 'bob' asked for 6MiB that the driver lacks for a context of about 8MiB on "));
  EXPECT_THAT(machine.why(refused), HasSubstr("16MiB are kept for other tenants' guarantees"));
  EXPECT_EQ(view().contexts_refused, 1U);
  EXPECT_EQ(machine.events_of(Event::Kind::kDenied).size(), 1U) << "gpumem why tells of it";
  EXPECT_EQ(missing(), Bytes{});
  const SessionId ann = machine.connect(1);
  EXPECT_TRUE(machine.is_granted(announce(ann))) << "out of her own guarantee";
  EXPECT_TRUE(machine.is_granted(machine.grow(ann, machine.slice(ann), mebibytes(10))));
  EXPECT_EQ(view().free, mebibytes(4)) << "of which nothing is promised any more";
}

TEST_F(BrokerContext, WaitsInTheLineForMemoryOfThePoolOrOfTheDriver) {
  leave_free({});
  const SessionId bob = machine.connect(2);
  const SliceId slice = machine.slice(bob);
  const Grant most = machine.get(bob, slice, mebibytes(48));
  const SessionId other = machine.connect(2);
  const RequestId waiting = announce(other, seconds(60));
  EXPECT_FALSE(machine.is_answered(waiting));
  EXPECT_TRUE(machine.give_back(bob, slice, most));
  EXPECT_TRUE(machine.is_granted(waiting));
  done(other, Outcome::kFailed);
  expect_whole_once_others_leave();
  leave_free({});

  const Grant again = machine.get(bob, slice, mebibytes(48));
  const RequestId next = announce(other, seconds(60));
  EXPECT_FALSE(machine.is_answered(next));
  machine.driver.restore(0);
  machine.die(machine.connect(2));
  EXPECT_TRUE(machine.is_granted(next)) << "a process that is gone has had a context";
  EXPECT_EQ(missing(), Bytes{});
}

TEST_F(BrokerContext, RoomThatIsNotUsedComesBackAfterAWhile) {
  leave_free({});
  const SessionId bob = machine.connect(2);
  EXPECT_TRUE(machine.is_granted(announce(bob)));
  machine.pass_in_steps(ContextRoom::kLongest - seconds(1));
  EXPECT_EQ(missing(), kOneContext);
  machine.pass_in_steps(seconds(2));
  expect_whole_once_others_leave();
  EXPECT_EQ(outside("bob"), Bytes{});
  done(bob);  // too late: nobody knows of it any more
  EXPECT_EQ(machine.looks, 0);
}

TEST_F(BrokerContext, IsExpectedToNeedMoreWhenItHasFailed) {
  const SessionId bob = machine.connect(2);
  announce(bob);
  done(bob, Outcome::kOutOfMemory);
  for (std::size_t i = 1; i < ContextDone::kAttempts; ++i) {
    EXPECT_EQ(view().contexts_refused, 0U) << "it is tried again";
    EXPECT_TRUE(machine.is_granted(announce(bob)));
    EXPECT_EQ(machine.driver.room(0), kTwoContexts);
    done(bob, Outcome::kOutOfMemory);
  }
  EXPECT_EQ(view().contexts_refused, 1U);
  ASSERT_EQ(machine.events_of(Event::Kind::kDenied).size(), 1U);
  EXPECT_THAT(machine.events_of(Event::Kind::kDenied)[0].words, HasSubstr("no memory for a context"));
}

// All of a user's contexts that are being made, but one, count in its tenant's limit.
TEST_F(BrokerContext, HaveNoMoreRoomThanTheirTenantsMayHave) {
  Policy policy = with_contexts();
  policy.tenants[1].quotas[0].limit = kTwoContexts;
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  machine.driver.restore(0);
  leave_free(mebibytes(48));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(machine.is_granted(announce(machine.connect(2))));
  EXPECT_EQ(outside("bob"), kTwoContexts);
  EXPECT_TRUE(machine.is_granted(announce(machine.connect(1)))) << "three have room, and it is the fourth";
  EXPECT_EQ(missing(), Bytes{});
}

// Loans can be taken back, and contexts cannot.
TEST_F(BrokerContext, TakeNothingThatIsGuaranteedToOthersThoughItIsLent) {
  Policy policy = with_contexts();
  policy.devices[0].reclaim.lend_guarantees = true;
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  leave_free({});
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(48));
  EXPECT_FALSE(machine.is_granted(announce(machine.connect(2))));
  EXPECT_EQ(missing(), Bytes{});
}

// A job that has reserved all that its tenant may have would keep its own contexts out.
TEST_F(BrokerContext, TakeWhatTheirJobHasReserved) {
  leave_free({});
  const SessionId owner = machine.connect(2);
  const auto job = machine.broker.begin_job(owner, {"", {}}, machine.now);
  ASSERT_TRUE(job);
  const RequestId all = machine.request_ids.next();
  machine.broker.reserve_for_job(all, owner, {"GPU-0", mebibytes(48), {}}, machine.now);
  machine.collect();
  ASSERT_TRUE(machine.is_granted(all)) << machine.why(all);
  const auto member = machine.broker.open_session(peer_of(2), "", machine.now, job->job);
  ASSERT_TRUE(member);
  EXPECT_TRUE(machine.is_granted(announce(*member)));
  EXPECT_EQ(machine.broker.jobs()[0].devices[0].reserved, mebibytes(40));
  EXPECT_EQ(missing(), kOneContext);
}

TEST_F(BrokerContext, AnEndAtAnyStageLeavesThePoolWhole) {
  machine.jobs_run_at_once = false;
  for (int jobs = 0; jobs < 4; ++jobs) {
    for (const bool dies : {false, true}) {
      leave_free({});
      const SessionId bob = machine.connect(2);
      const RequestId id = announce(bob);
      for (int i = 0; i < jobs; ++i) machine.run_job();
      if (dies)
        machine.die(bob);
      else
        machine.cancel(id);
      machine.run_jobs();
      machine.say_goodbye(bob);
      machine.jobs_run_at_once = true;
      expect_whole_once_others_leave();
      machine.jobs_run_at_once = false;
      EXPECT_TRUE(machine.is_as_new()) << jobs << (dies ? " dies" : " cancels");
      EXPECT_EQ(outside("bob"), Bytes{});
    }
  }
}

// ---- Within the limits of jobs ----

struct ContextsInLimit : BrokerContext {
  static constexpr Bytes kEstimate = mebibytes(4);

  static Policy policy(bool in_limit = true) {
    Policy policy = with_contexts();
    policy.devices[0].context_overhead = kEstimate;
    policy.devices[0].contexts_in_limit = in_limit;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    return policy;
  }
  ContextsInLimit() : BrokerContext(policy()) {
    Peer beside = peer_of(2);
    ++beside.pid;
    owner = machine.broker.open_session(beside, "", machine.now).value();
    const auto job = machine.broker.begin_job(owner, {"train", mebibytes(16)}, machine.now);
    member = machine.broker.open_session(peer_of(2), "", machine.now, job.value().job).value();
    slice = machine.slice(member);
  }
  auto job() const { return machine.broker.jobs()[0].devices[0]; }
  void expect_nobody_asked() {
    machine.pass_in_steps(seconds(60));
    EXPECT_THAT(machine.events_of(Event::Kind::kPressure), testing::IsEmpty());
    EXPECT_THAT(machine.events_of(Event::Kind::kTerminating), testing::IsEmpty());
  }

  SessionId owner, member;
  SliceId slice;
};

TEST_F(ContextsInLimit, CountAsTheirEstimateAndThenAsMeasured) {
  EXPECT_EQ(job().charged, kEstimate);
  const Grant grant = machine.get(member, slice, mebibytes(12));
  EXPECT_THAT(
      machine.why(machine.grow(member, slice, mebibytes(2))),
      testing::AllOf(HasSubstr("its job's limit of 16MiB"), HasSubstr("4MiB of it by contexts of its")));
  observe(2, mebibytes(7));
  EXPECT_EQ(job().charged, mebibytes(19));
  EXPECT_EQ(outside("bob"), mebibytes(7)) << "all of it, although it is more than the job may have";
  EXPECT_THAT(machine.why(machine.grow(member, slice, mebibytes(2))),
              HasSubstr("nothing is granted while 19MiB are charged against its job's limit"));
  expect_nobody_asked();
  ASSERT_TRUE(machine.give_back(member, slice, grant));
  machine.get(member, slice, mebibytes(8));
  EXPECT_EQ(machine.code(machine.grow(member, slice, mebibytes(2))), Code::kResourceExhausted);
  EXPECT_EQ(job().peak, mebibytes(12)) << "what was lent";
}

TEST_F(ContextsInLimit, AnEstimateForWhichThereIsNoRoomIsADebtOfNobody) {
  observe(2, mebibytes(2));
  const Grant grant = machine.get(member, slice, mebibytes(14));
  machine.restart(policy());
  ASSERT_TRUE(machine.resume(owner, {}, {}));
  ASSERT_TRUE(machine.resume(member, {slice}, {grant}));
  EXPECT_EQ(job().charged, mebibytes(18));
  expect_nobody_asked();
  observe(2, mebibytes(2));
  EXPECT_EQ(job().charged, mebibytes(16));
}

TEST_F(ContextsInLimit, NoFurtherSliceIsOpenedWithoutRoomForOne) {
  const Grant grant = machine.get(member, slice, mebibytes(12));
  Peer other = peer_of(2);
  other.pid += 2;
  const auto second =
      machine.broker.open_session(other, "", machine.now, machine.broker.jobs()[0].id).value();
  const auto refused = machine.broker.open_slice(second, {"GPU-0", {}, "test"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(
      refused.error().message,
      testing::AllOf(HasSubstr("the limit of 'job 1' (16MiB, of which 16MiB"), HasSubstr("higher --limit")));
  ASSERT_TRUE(machine.give_back(member, slice, grant));
  EXPECT_TRUE(machine.broker.open_slice(second, {"GPU-0", {}, "test"}));
}

TEST_F(ContextsInLimit, TakeTheirRoomOfThePoolThere) {
  leave_free({});
  ASSERT_TRUE(machine.is_granted(announce(member)));
  EXPECT_EQ(missing(), kEstimate);
  EXPECT_EQ(job().outside, kEstimate) << "room, in place of the estimate";
  done(member);
  observe(2, mebibytes(5));
  EXPECT_EQ(job().outside, mebibytes(5));
  machine.die(member);
  machine.say_goodbye(owner);
  expect_whole_once_others_leave();
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(ContextsInLimit, ArePaidByWhatTheirJobHasReserved) {
  machine.die(member);
  const RequestId all = machine.request_ids.next();
  machine.broker.reserve_for_job(all, owner, {"GPU-0", mebibytes(16), {}}, machine.now);
  machine.collect();
  ASSERT_TRUE(machine.is_granted(all)) << machine.why(all);
  machine.slice(
      machine.broker.open_session(peer_of(2), "", machine.now, machine.broker.jobs()[0].id).value());
  EXPECT_EQ(job().charged, mebibytes(16));
  EXPECT_EQ(job().reserved, mebibytes(12));
}

TEST_F(ContextsInLimit, FollowTheSetting) {
  observe(2, mebibytes(7));
  for (const bool in_limit : {false, true, false}) {
    ASSERT_TRUE(machine.broker.apply(policy(in_limit), machine.now));
    machine.collect();
    EXPECT_EQ(job().charged, in_limit ? mebibytes(7) : Bytes{});
    EXPECT_EQ(outside("bob"), mebibytes(7));
  }
  machine.die(member);
  EXPECT_EQ(outside("bob"), Bytes{});
}

}  // namespace
}  // namespace gpumem::core
