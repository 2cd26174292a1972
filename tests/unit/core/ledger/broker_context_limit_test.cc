// Contexts within the limits of jobs, where the administrator says that they count there.
#include <gmock/gmock.h>

#include "tests/unit/core/ledger/context_fixture.h"

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

struct ContextsInLimit : BrokerContext {
  static constexpr Bytes kEstimate = mebibytes(4);

  static Policy policy(bool in_limit = true) {
    Policy policy = with_contexts();
    policy.devices[0].context_overhead = kEstimate;
    policy.devices[0].contexts_in_limit = in_limit;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    return policy;
  }
  static Peer process() {
    Peer process = peer_of(2);
    process.started = 7;
    return process;
  }
  ContextsInLimit() : BrokerContext(policy()) {
    Peer beside = peer_of(2);
    ++beside.pid;
    owner = machine.broker.open_session(beside, "", machine.now).value();
    const auto job = machine.broker.begin_job(owner, {"train", mebibytes(16)}, machine.now);
    member = machine.broker.open_session(process(), "", machine.now, job.value().job).value();
    slice = machine.slice(member);
  }
  auto job() const { return machine.broker.jobs()[0].devices[0]; }

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
  observe(2, mebibytes(3));
  EXPECT_EQ(job().charged, mebibytes(17));
  expect_nobody_asked();
  observe(2, mebibytes(2));
  EXPECT_EQ(job().charged, mebibytes(16));
}

TEST_F(ContextsInLimit, AContextThatShrinksIsStillADebtOfNobody) {
  observe(2, mebibytes(1));
  machine.get(member, slice, mebibytes(14));
  for (const Bytes now : {mebibytes(5), mebibytes(4), mebibytes(3)}) {
    observe(2, now);
    EXPECT_EQ(job().charged, mebibytes(14) + now);
    expect_nobody_asked();
  }
}

TEST_F(ContextsInLimit, IsOneOfAllSessionsOfAProcess) {
  const SessionId second =
      machine.broker.open_session(process(), "", machine.now, machine.broker.jobs()[0].id).value();
  machine.slice(second);
  EXPECT_EQ(job().charged, kEstimate);
  observe(2, mebibytes(7));
  machine.slice(machine.broker.open_session(process(), "", machine.now, machine.broker.jobs()[0].id).value());
  EXPECT_EQ(job().charged, mebibytes(7));
}

// A job waits for what the estimate takes too much.
TEST_F(ContextsInLimit, AreMeasuredAsSoonAsTheyAreMade) {
  machine.driver.restore(0);
  ASSERT_TRUE(machine.is_granted(announce(member)));
  done(member);
  EXPECT_EQ(machine.looks, 1);
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

TEST_F(ContextsInLimit, AreADebtOfNobodyWhereTheyComeIntoALimitThatIsUsed) {
  ASSERT_TRUE(machine.broker.apply(policy(false), machine.now));
  observe(2, mebibytes(3));
  const Grant grant = machine.get(member, slice, mebibytes(16));
  ASSERT_TRUE(machine.broker.apply(policy(), machine.now));
  EXPECT_EQ(job().charged, mebibytes(19));
  expect_nobody_asked();
  ASSERT_TRUE(machine.give_back(member, slice, grant));
  observe(2, mebibytes(3));
  machine.get(member, slice, mebibytes(12));
}

struct ContextsUnderAnotherPolicy : BrokerContext {
  static Policy policy() {
    Policy policy = with_contexts();
    policy.devices[0].context_overhead = kOneContext;
    policy.devices[0].reclaim.escalation = Escalation::kEndSession;
    return policy;
  }
  ContextsUnderAnotherPolicy() : BrokerContext(policy()) {}
  SessionId bob = machine.connect(2);
  SliceId slice = machine.slice(bob);
};

// Ann and bob are below one group from now on.
TEST_F(ContextsUnderAnotherPolicy, AreADebtOfNobodyInATenantWithoutRoomForThem) {
  machine.slice(machine.connect(1));
  machine.get(bob, slice, mebibytes(12));
  Policy other = policy();
  other.others = {{{}, mebibytes(20)}};
  other.others_parent = "lab";
  other.tenants = {parent("lab", {{{}, mebibytes(24)}})};
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  EXPECT_EQ(outside("lab"), kTwoContexts);
  expect_nobody_asked();
}

TEST_F(ContextsUnderAnotherPolicy, AreADebtOfNobodyWhereTheirEstimateIsLowered) {
  observe(2, kOneContext);
  machine.get(bob, slice, mebibytes(16));
  Policy other = policy();
  other.devices[0].context_overhead = {};
  other.tenants[1].quotas[0].limit = mebibytes(20);
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  expect_nobody_asked();
}

}  // namespace
}  // namespace gpumem::core
