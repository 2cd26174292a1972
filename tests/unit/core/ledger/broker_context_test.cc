// Room for contexts, which programs announce: what the driver lacks for one comes out of the pool, and goes
// back.
#include <gmock/gmock.h>

#include "tests/unit/core/ledger/context_fixture.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using Outcome = ContextDone::Outcome;

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
  const SessionId ann = machine.connect(1);
  machine.grow(ann, machine.slice(ann), mebibytes(62), seconds(10));
  const auto explained = machine.broker.explain_tenant("ann", true, machine.now);
  EXPECT_THAT(explained->waiting.at(0).soonest.why,
              HasSubstr("when programs end whose contexts take 4MiB of the pool"));
  machine.die(ann);
  machine.die(bob);
  machine.die(other);
  machine.driver.restore(0);
  machine.pass_in_steps(Store::kLongestPause);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerContext, ExpectsWhatTheFirstOneOfAProcessHasTakenIfItWasMeasuredSoon) {
  struct Case {
    int contexts;
    Duration after;
    Bytes expected;
  };
  for (const Case& one : {Case{2, ContextRoom::kFresh, kOneContext},
                          {1, ContextRoom::kFresh + std::chrono::milliseconds(1), kOneContext},
                          {1, ContextRoom::kFresh, mebibytes(6)}}) {
    machine.driver.restore(0);
    leave_free(kTwoContexts);
    const SessionId bob = machine.connect(2);
    for (int i = 0; i < one.contexts; ++i) announce(bob);
    for (int i = 0; i < one.contexts; ++i) done(bob);
    machine.pass(one.after);
    observe(2, mebibytes(6));
    leave_free({});
    const RequestId next = announce(bob);
    EXPECT_TRUE(machine.is_granted(next));
    EXPECT_EQ(missing(), one.expected) << one.contexts;
    machine.die(bob);
    expect_whole_once_others_leave();
  }
}

TEST_F(BrokerContext, FindsNoRoomWhereAnotherWasMadeWhileTheDriverWasAsked) {
  const SessionId bob = machine.connect(2);
  announce(bob);
  machine.jobs_run_at_once = false;
  announce(machine.connect(2));
  const JobResult before = machine.run_next_job(0);
  leave_free(mebibytes(4));
  done(bob);
  machine.broker.job_done(before, machine.now);
  machine.run_jobs();
  EXPECT_EQ(missing(), mebibytes(4)) << "8 MiB of the 12 that it was told are bob's";
}

TEST_F(BrokerContext, MayBeMadeFasterThanTheyAreMeasured) {
  const SessionId bob = machine.connect(2);
  const std::size_t most = machine.broker.policy().max_requests_per_session;
  leave_free(kOneContext);
  for (std::size_t i = 0; i <= 2 * most; ++i) {
    ASSERT_TRUE(machine.is_granted(announce(bob))) << i;
    done(bob);
  }
  leave_free({});
  EXPECT_TRUE(machine.is_granted(announce(bob)));
  EXPECT_EQ(missing(), kOneContext) << "it has room all the same";
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

struct ContextOfAJob : BrokerContext {
  ContextOfAJob() { leave_free({}); }
  /// A session of a job of bob's that has reserved so much.
  SessionId member_of_job(Bytes reserved) {
    const SessionId owner = machine.connect(2);
    const auto job = machine.broker.begin_job(owner, {"", {}}, machine.now);
    const RequestId all = machine.request_ids.next();
    machine.broker.reserve_for_job(all, owner, {"GPU-0", reserved, {}}, machine.now);
    machine.collect();
    EXPECT_TRUE(machine.is_granted(all)) << machine.why(all);
    return machine.broker.open_session(peer_of(2), "", machine.now, job->job).value();
  }
  Bytes reserved() const { return machine.broker.jobs()[0].devices[0].reserved; }
};

// A job that has reserved all that its tenant may have would keep its own contexts out.
TEST_F(ContextOfAJob, TakesWhatItsJobHasReservedWhereThereIsNoOther) {
  EXPECT_TRUE(machine.is_granted(announce(member_of_job(mebibytes(48)))));
  EXPECT_EQ(reserved(), mebibytes(40));
  EXPECT_EQ(missing(), kOneContext);
}

// The job could not begin while a request waits for its end.
TEST_F(ContextOfAJob, TakesWhatItsJobHasReservedWhereOthersAreFirst) {
  Policy policy = with_contexts();
  policy.tenants.push_back(user("carol", 3, {{{}, mebibytes(64)}}));
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  const SessionId member = member_of_job(mebibytes(28));
  const SessionId carol = machine.connect(3);
  const RequestId next = machine.grow(carol, machine.slice(carol), mebibytes(30), seconds(3600));
  ASSERT_FALSE(machine.is_answered(next));
  for (const Duration wait : {seconds(0), seconds(20), seconds(0)})
    EXPECT_TRUE(machine.is_granted(announce(member, wait)));
  EXPECT_EQ(reserved(), mebibytes(4));
  EXPECT_EQ(missing(), mebibytes(24));
  EXPECT_EQ(view().free, mebibytes(36)) << "nothing is taken that others wait for";
  EXPECT_FALSE(machine.is_granted(announce(member))) << "too little is left for one more";
}

// Reserved memory can be taken back for the guarantee that it is lent from, and a context's cannot.
TEST_F(ContextOfAJob, TakesNothingThatIsGuaranteedToOthers) {
  Policy policy = with_contexts();
  policy.devices[0].reclaim.lend_guarantees = true;
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  const SessionId bob = machine.connect(2);
  const Grant most = machine.get(bob, machine.slice(bob), mebibytes(40));
  const SessionId member = member_of_job(mebibytes(24));
  EXPECT_FALSE(machine.is_granted(announce(member)));
  EXPECT_EQ(reserved(), mebibytes(24));
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

TEST_F(BrokerContext, TakesNothingOfThePoolIfItIsCalledOffWhileExtentsAreReshaped) {
  Policy policy = with_contexts();
  policy.devices[0].context_overhead = mebibytes(14);  // all that is left
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  leave_free({});
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  machine.use_up_stock(ann, slice);
  machine.jobs_run_at_once = false;
  const RequestId context = announce(machine.connect(2));
  const RequestId growth = machine.grow(ann, {{slice, mebibytes(4), {}, kOneExtent}});
  machine.run_job();
  EXPECT_EQ(missing(), mebibytes(14));
  machine.cancel(context);
  EXPECT_EQ(missing(), Bytes{});
  machine.run_jobs();
  EXPECT_TRUE(machine.is_granted(growth));
  EXPECT_EQ(missing(), Bytes{});
}

// The host store's charges of a job are not where those of a context are.
TEST(BrokerContextOfTheHostStore, IsRefused) {
  Policy policy = small_policy();
  policy.devices.push_back(device("host", mebibytes(128)));
  policy.devices[1].total = mebibytes(256);
  for (TenantRule& rule : policy.tenants) rule.quotas.push_back({{}, mebibytes(128)});
  Machine machine(policy);
  const SessionId bob = machine.connect(2);
  const RequestId id = machine.request_ids.next();
  machine.broker.announce_context(id, bob, {"host", seconds(1)}, machine.now);
  machine.collect();
  EXPECT_THAT(machine.why(id), HasSubstr("the host store has no contexts"));
  machine.broker.context_done(bob, {"host", Outcome::kOutOfMemory}, machine.now);
  EXPECT_EQ(machine.charged("bob", 1), Bytes{});
}

}  // namespace
}  // namespace gpumem::core
