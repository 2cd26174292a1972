#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// What follows where memory that is asked for does not come back in time.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

// Bob's sessions hold all 64 MiB, 16 of which are promised to ann.
class BrokerEscalation : public testing::Test {
 protected:
  static Policy policy(Escalation escalation) {
    Policy policy = small_policy();
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.devices[0].reclaim.escalation = escalation;
    return policy;
  }
  static Policy of_two_devices() {
    Policy both = policy(Escalation::kEndSession);
    both.devices.push_back(both.devices[0]);
    both.devices[1].uuid = "GPU-1";
    for (TenantRule& tenant : both.tenants) tenant.quotas.push_back(tenant.quotas[0]);
    return both;
  }
  void start(Escalation escalation) {
    machine.emplace(policy(escalation));
    ann = machine->connect(1);
    small = machine->connect(2);
    large = machine->connect(2);
    machine->get(small, machine->slice(small), mebibytes(24));
    slice_of_large = machine->slice(large);
    grant_of_large = machine->get(large, slice_of_large, mebibytes(40));
  }
  void give_back_all_of_large() { EXPECT_TRUE(machine->give_back(large, slice_of_large, grant_of_large)); }
  RequestId claim(Bytes bytes = mebibytes(16)) {
    return machine->grow(ann, machine->slice(ann), bytes, std::chrono::minutes(5));
  }
  std::optional<Machine> machine;
  SessionId ann;
  SessionId small;
  SessionId large;
  SliceId slice_of_large;
  Grant grant_of_large;
};

TEST_F(BrokerEscalation, WaitsWhereNothingElseIsAskedFor) {
  start(Escalation::kWait);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(60));
  EXPECT_FALSE(machine->is_answered(id));
  EXPECT_EQ(machine->asked_of(large), mebibytes(16)) << "still";
  EXPECT_THAT(machine->signals, IsEmpty());
}

TEST_F(BrokerEscalation, DeniesTheClaimsAndRelievesTheAsked) {
  start(Escalation::kDeny);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(2) - std::chrono::nanoseconds(1));
  EXPECT_FALSE(machine->is_answered(id));
  machine->pass_in_steps(seconds(1));
  ASSERT_TRUE(machine->is_answered(id));
  EXPECT_EQ(machine->denial(id).reason, Denial::Reason::kNoMemory);
  EXPECT_EQ(machine->asked_of(large), Bytes{0}) << "nobody waits for it";
  EXPECT_THAT(machine->signals, IsEmpty());
  EXPECT_EQ(machine->broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerEscalation, DoesNotDenyForADebt) {
  start(Escalation::kDeny);
  Policy lower = policy(Escalation::kDeny);
  lower.tenants[1].quotas[0].limit = mebibytes(32);
  ASSERT_TRUE(machine->broker.apply(lower, machine->now));
  machine->collect();
  machine->pass_in_steps(seconds(60));
  EXPECT_EQ(machine->asked_of(large), mebibytes(32));
  EXPECT_THAT(machine->signals, IsEmpty());
}

TEST_F(BrokerEscalation, EndsTheSessionThatWasAskedFirstKindlyThenNot) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(2));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  machine->pass_in_steps(seconds(5) - std::chrono::nanoseconds(1));
  EXPECT_EQ(machine->signals.size(), 1u);
  machine->pass_in_steps(std::chrono::nanoseconds(1));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill)));
  machine->die(large);
  EXPECT_TRUE(machine->is_granted(id));
  machine->pass_in_steps(seconds(60));
  EXPECT_EQ(machine->signals.size(), 2u);
  const auto terminating = machine->events_of(Event::Kind::kTerminating);
  ASSERT_EQ(terminating.size(), 1u);
  EXPECT_THAT(terminating[0].words, HasSubstr("others wait for what they are guaranteed, and it did not give "
                                              "back the "));
  EXPECT_EQ(machine->events_of(Event::Kind::kKilling).size(), 1u);
  EXPECT_EQ(machine->broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerEscalation, KillsNobodyWhoHasReturnedAfterSigtermAsMuchAsWasAsked) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(2) + std::chrono::milliseconds(50));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  give_back_all_of_large();
  EXPECT_TRUE(machine->is_granted(id));
  machine->pass_in_steps(seconds(60));
  EXPECT_EQ(machine->signals.size(), 1u);
  EXPECT_EQ(machine->broker.next_deadline(), std::nullopt);
}

// The host has not read all that the session has sent before its deadline ended.
TEST_F(BrokerEscalation, SendsNoSignalToWhomHasReturnedInTimeWhatIsReadLate) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(2));
  ASSERT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  machine->broker.hold_signal(large, machine->now);  // in place of it
  machine->pass_in_steps(std::chrono::milliseconds(50));
  give_back_all_of_large();
  EXPECT_TRUE(machine->is_granted(id));
  machine->pass_in_steps(seconds(60));
  EXPECT_EQ(machine->signals.size(), 1u);
  EXPECT_EQ(machine->broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerEscalation, KillsNobodyLaterBecauseSomethingWasUnread) {
  for (const bool lies : {false, true}) {
    start(Escalation::kEndSession);
    claim();
    machine->pass_in_steps(seconds(2));
    machine->broker.hold_signal(large, machine->now);
    machine->signals.clear();
    if (lies) {
      ASSERT_TRUE(machine->keep_but_give_back(large, slice_of_large, grant_of_large));
    }
    machine->pass_in_steps(Terminations::kReadingTime - std::chrono::nanoseconds(1));
    EXPECT_THAT(machine->signals, IsEmpty());
    machine->pass_in_steps(std::chrono::nanoseconds(1));
    EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
    machine->pass_in_steps(seconds(5) - Terminations::kReadingTime);
    EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill)));
  }
}

TEST_F(BrokerEscalation, SendsSigtermFirstHoweverLateTheProofOfAReturnFails) {
  start(Escalation::kEndSession);
  claim();
  machine->pass_in_steps(seconds(2));
  machine->broker.hold_signal(large, machine->now);
  machine->signals.clear();
  machine->jobs_run_at_once = false;
  ASSERT_TRUE(machine->keep_but_give_back(large, slice_of_large, grant_of_large));
  machine->pass_in_steps(seconds(6));
  EXPECT_THAT(machine->signals, IsEmpty()) << "the driver has not been asked yet";
  machine->run_jobs();
  machine->pass_in_steps(seconds(1));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  machine->pass_in_steps(seconds(5));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill)));
}

TEST_F(BrokerEscalation, KillsWhoHasKeptEverythingThoughOthersHaveMetTheClaim) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(3));
  machine->die(small);
  EXPECT_TRUE(machine->is_granted(id));
  machine->pass_in_steps(seconds(60));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill)));
}

TEST_F(BrokerEscalation, EndsNobodyElseWhileTheProcessOfABrokenLaneEnds) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(2));
  machine->lose_lane(large);
  machine->pass_in_steps(seconds(5));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill)));
  EXPECT_EQ(machine->asked_of(small), Bytes{0});
  machine->die(large);
  EXPECT_TRUE(machine->is_granted(id));
}

TEST_F(BrokerEscalation, GoesOnToTheNextWhenAProcessDoesNotEndForAllThat) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass_in_steps(seconds(30));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill),
                                            Pair(small, Signal::kTerminate), Pair(small, Signal::kKill)));
  machine->die(small);
  EXPECT_TRUE(machine->is_granted(id));
}

TEST_F(BrokerEscalation, AsksATenantForNoMoreThanItsBurstBesidesWhatIsEnded) {
  Policy two_claimants = policy(Escalation::kEndSession);
  two_claimants.tenants = {
      user("ann", 1, {{mebibytes(30), mebibytes(64)}}), user("bob", 2, {{mebibytes(10), mebibytes(64)}}),
      user("cid", 3, {{{}, mebibytes(64)}}), user("eve", 4, {{mebibytes(20), mebibytes(64)}})};
  machine.emplace(two_claimants);
  ann = machine->connect(1);
  small = machine->connect(2);
  large = machine->connect(2);
  const SessionId cid = machine->connect(3);
  const SessionId eve = machine->connect(4);
  machine->get(large, machine->slice(large), mebibytes(30));
  machine->get(small, machine->slice(small), mebibytes(20));
  machine->get(cid, machine->slice(cid), mebibytes(14));
  claim(mebibytes(30));
  machine->pass_in_steps(seconds(2));
  ASSERT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  machine->grow(eve, machine->slice(eve), mebibytes(20), seconds(60));
  EXPECT_EQ(machine->asked_of(small), mebibytes(10)) << "10 are promised to bob";
  EXPECT_EQ(machine->asked_of(cid), mebibytes(10));
}

TEST_F(BrokerEscalation, EndsNobodyWhoGivesBackInTime) {
  start(Escalation::kEndSession);
  machine->cooperative = true;
  const RequestId id = claim();
  EXPECT_TRUE(machine->is_granted(id));
  machine->pass_in_steps(seconds(60));
  EXPECT_THAT(machine->signals, IsEmpty());
}

TEST_F(BrokerEscalation, EndsWhoSaysItHasNothingAllTheSame) {
  start(Escalation::kEndSession);
  claim();
  machine->say_spent(large);
  machine->say_spent(small);
  const auto waiting = machine->broker.explain_session(ann, false, machine->now).value().waiting;
  ASSERT_EQ(waiting.size(), 1U);
  EXPECT_TRUE(waiting[0].soonest.within) << waiting[0].soonest.why;
  EXPECT_THAT(waiting[0].soonest.why, testing::HasSubstr("are ended if they do not"));
  machine->pass(Duration{});
  const auto relieved = machine->events_of(Event::Kind::kRelieved);
  ASSERT_EQ(relieved.size(), 2U);
  for (const Event& event : relieved)
    EXPECT_THAT(event.words, testing::ContainsRegex("and is ended if nobody else has given .*MiB within 2"));
  for (const SessionView& view : machine->broker.sessions())
    EXPECT_EQ(view.asked.size(), view.id == ann ? 0U : 1U) << "what it may be ended for";
  machine->pass_in_steps(seconds(2));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(small, Signal::kTerminate)));
  EXPECT_THAT(machine->events_of(Event::Kind::kTerminating).front().words,
              testing::HasSubstr("MiB it was asked for"));
}

TEST_F(BrokerEscalation, ThreatensNobodyWhereNobodyIsEnded) {
  start(Escalation::kWait);
  claim();
  machine->say_spent(large);
  machine->pass(Duration{});
  const auto relieved = machine->events_of(Event::Kind::kRelieved);
  ASSERT_EQ(relieved.size(), 1U);
  EXPECT_EQ(relieved[0].words, "it says that it has no more to give");
  for (const SessionView& view : machine->broker.sessions())
    if (view.id == large) {
      EXPECT_THAT(view.asked, IsEmpty());
    }
}

TEST_F(BrokerEscalation, EndsWhoWasAskedFirstHoweverLateItLooks) {
  start(Escalation::kEndSession);
  claim();
  machine->pass(std::chrono::milliseconds(1));
  machine->say_spent(large);
  ASSERT_FALSE(machine->asked_of(small).is_zero());
  machine->pass(seconds(3));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
}

TEST_F(BrokerEscalation, KillsNobodyWhoHadNothingToGiveAndHasReturnedAfterSigterm) {
  start(Escalation::kEndSession);
  const RequestId id = claim();
  machine->pass(std::chrono::milliseconds(1));
  machine->say_spent(large);
  machine->pass_in_steps(seconds(2) - std::chrono::milliseconds(1));
  ASSERT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  give_back_all_of_large();
  EXPECT_TRUE(machine->is_granted(id));
  machine->pass_in_steps(seconds(60));
  EXPECT_THAT(machine->signals, SizeIs(1));
}

// Each time the other session is the larger one.
TEST_F(BrokerEscalation, IsNotPutOffBySessionsThatReturnALittleInTurns) {
  machine.emplace(policy(Escalation::kEndSession));
  ann = machine->connect(1);
  std::map<SessionId, std::pair<SliceId, std::vector<Grant>>> all;
  for (int i = 0; i < 2; ++i) {
    const SessionId bob = machine->connect(2);
    auto& [slice, grants] = all[bob];
    slice = machine->slice(bob);
    for (int piece = 0; piece < 16; ++piece) grants.push_back(machine->get(bob, slice, mebibytes(2)));
  }
  claim();
  for (int turn = 0; turn < 2; ++turn) {
    machine->pass_in_steps(std::chrono::milliseconds(1900));
    for (auto& [bob, held] : all) {
      if (machine->asked_of(bob).is_zero()) continue;
      EXPECT_TRUE(machine->give_back(bob, held.first, held.second.back()));
      held.second.pop_back();
    }
  }
  EXPECT_THAT(machine->signals, SizeIs(1));
}

TEST_F(BrokerEscalation, GivesNobodyMoreTimeByAReload) {
  start(Escalation::kEndSession);
  claim();
  machine->pass(std::chrono::milliseconds(1));
  machine->say_spent(large);
  Policy other = policy(Escalation::kEndSession);
  for (const seconds aging : {seconds(0), seconds(70)}) {
    machine->pass(std::chrono::milliseconds(500));
    if (aging > seconds(0)) other.aging = aging;
    ASSERT_TRUE(machine->broker.apply(other, machine->now));
    machine->collect();
    EXPECT_THAT(machine->signals, IsEmpty());
  }
  machine->pass_in_steps(seconds(1));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
}

TEST_F(BrokerEscalation, EndsNobodyForTheSakeOfFairness) {
  start(Escalation::kEndSession);
  machine->grow(ann, machine->slice(ann), mebibytes(20), std::chrono::minutes(5));
  EXPECT_FALSE(machine->asked_of(large).is_zero());
  machine->pass_in_steps(seconds(60));
  EXPECT_THAT(machine->signals, IsEmpty());
}

TEST_F(BrokerEscalation, EndsADebtorsSession) {
  start(Escalation::kEndSession);
  Policy lower = policy(Escalation::kEndSession);
  lower.tenants[1].quotas[0].limit = mebibytes(48);
  ASSERT_TRUE(machine->broker.apply(lower, machine->now));
  machine->collect();
  machine->pass_in_steps(seconds(2));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate)));
  machine->die(large);
  EXPECT_EQ(machine->events_of(Event::Kind::kDebtPaid).size(), 1u);
  machine->pass_in_steps(seconds(60));
  EXPECT_EQ(machine->signals.size(), 1u);
}

// A reload has turned `refuse` on: what the sessions of such users have is a debt of theirs.
TEST_F(BrokerEscalation, AsksUsersWhoAreTurnedAwayBeforeItEndsThem) {
  Policy others = policy(Escalation::kEndSession);
  others.others = std::vector<Quota>{{{}, mebibytes(64)}};
  machine.emplace(others);
  const SessionId stranger = machine->connect(77);
  const SliceId slice = machine->slice(stranger);
  machine->get(stranger, slice, mebibytes(16));
  others.others.reset();
  ASSERT_TRUE(machine->broker.apply(others, machine->now));
  machine->collect();
  EXPECT_EQ(machine->asked_of(stranger), mebibytes(16));
  EXPECT_THAT(machine->signals, IsEmpty()) << "a whole deadline is its own";
  machine->pass_in_steps(seconds(2));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(stranger, Signal::kTerminate)));
}

TEST_F(BrokerEscalation, EndsADebtorHoweverMuchOthersGiveBack) {
  start(Escalation::kEndSession);
  Policy lower = policy(Escalation::kEndSession);
  lower.tenants[1].quotas[0].limit = mebibytes(62);
  machine->die(large);
  const SliceId slice = machine->slice(ann);
  const Grant anns = machine->get(ann, slice, mebibytes(16));
  lower.tenants[1].quotas[0].limit = mebibytes(22);
  ASSERT_TRUE(machine->broker.apply(lower, machine->now));
  machine->jobs_run_at_once = false;
  machine->collect();
  ASSERT_TRUE(machine->give_back(ann, slice, anns));
  ASSERT_EQ(machine->in(Charge::kReturning), mebibytes(16));
  machine->pass_in_steps(seconds(2));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(small, Signal::kTerminate)));
}

// Small has 2 MiB and has declared 16, large has 8.
TEST_F(BrokerEscalation, EndsTheDebtorsSessionThatHasMostWithWhatItHasDeclared) {
  machine.emplace(policy(Escalation::kEndSession));
  small = machine->connect(2);
  large = machine->connect(2);
  machine->get(small, machine->slice(small), mebibytes(2));
  machine->get(large, machine->slice(large), mebibytes(8));
  ASSERT_TRUE(machine->broker.charge(small, {"GPU-0", mebibytes(16)}, machine->now));
  Policy lower = policy(Escalation::kEndSession);
  lower.tenants[1].quotas[0].limit = mebibytes(4);
  ASSERT_TRUE(machine->broker.apply(lower, machine->now));
  machine->collect();
  ASSERT_FALSE(machine->asked_of(large).is_zero());
  machine->pass_in_steps(seconds(2));
  ASSERT_FALSE(machine->signals.empty());
  EXPECT_EQ(machine->signals.front(), std::pair(small, Signal::kTerminate));
}

TEST_F(BrokerEscalation, KillsNobodyWhoHasReturnedAsMuchInPlaceOfWhatItHasDeclared) {
  machine.emplace(policy(Escalation::kEndSession));
  small = machine->connect(2);
  const SliceId slice = machine->slice(small);
  const Grant grant = machine->get(small, slice, mebibytes(16));
  ASSERT_TRUE(machine->broker.charge(small, {"GPU-0", mebibytes(16)}, machine->now));
  Policy lower = policy(Escalation::kEndSession);
  lower.tenants[1].quotas[0].limit = mebibytes(16);
  ASSERT_TRUE(machine->broker.apply(lower, machine->now));
  machine->collect();
  machine->pass_in_steps(seconds(2));
  ASSERT_THAT(machine->signals, ElementsAre(Pair(small, Signal::kTerminate)));
  ASSERT_TRUE(machine->give_back(small, slice, grant));
  machine->pass_in_steps(seconds(60));
  EXPECT_EQ(machine->signals.size(), 1u);
}

TEST_F(BrokerEscalation, NeverHasATimerInThePast) {
  for (const Escalation escalation : {Escalation::kWait, Escalation::kDeny, Escalation::kEndSession}) {
    start(escalation);
    claim();
    machine->say_spent(large);
    for (int i = 0; i < 200; ++i) {
      const auto next = machine->broker.next_deadline();
      if (!next) break;
      ASSERT_GT(*next, machine->now) << "step " << i;
      machine->pass(*next - machine->now);
      if (i == 40) machine->die(small);
      if (i == 60) machine->die(large);
    }
  }
}

// After SIGTERM, the session returns the memory of one device alone.
TEST_F(BrokerEscalation, GoesOnOnEachDeviceByItself) {
  machine.emplace(of_two_devices());
  ann = machine->connect(1);
  large = machine->connect(2);
  std::vector<RequestId> claims;
  for (const std::string device : {"GPU-0", "GPU-1"}) {
    const SliceId slice = machine->slice(large, {}, device);
    if (device == "GPU-0") {
      slice_of_large = slice;
      grant_of_large = machine->get(large, slice, mebibytes(16));
      machine->get(large, slice, mebibytes(48));
    } else {
      machine->get(large, slice, mebibytes(64));
    }
    claims.push_back(
        machine->grow(ann, machine->slice(ann, {}, device), mebibytes(16), std::chrono::minutes(5)));
    machine->pass(std::chrono::milliseconds(100));
  }
  machine->pass_in_steps(seconds(2));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate))) << "one for both";
  machine->pass_in_steps(std::chrono::milliseconds(4700));
  give_back_all_of_large();
  EXPECT_TRUE(machine->is_granted(claims[0]));
  EXPECT_EQ(machine->asked_of(large, 1), Bytes{}) << "it is late for that";
  machine->pass_in_steps(std::chrono::milliseconds(199));
  EXPECT_THAT(machine->signals, SizeIs(1));
  machine->pass_in_steps(std::chrono::milliseconds(1));
  EXPECT_THAT(machine->signals, ElementsAre(Pair(large, Signal::kTerminate), Pair(large, Signal::kKill)));
}

TEST_F(BrokerEscalation, CountsOnTheMemoryOfAKilledProcessOnAllDevices) {
  machine.emplace(of_two_devices());
  ann = machine->connect(1);
  large = machine->connect(2);
  for (const std::string device : {"GPU-0", "GPU-1"})
    machine->get(large, machine->slice(large, {}, device), mebibytes(64));
  claim();
  machine->pass_in_steps(seconds(7));
  ASSERT_THAT(machine->signals, SizeIs(2));
  machine->grow(ann, machine->slice(ann, {}, "GPU-1"), mebibytes(16), std::chrono::minutes(5));
  EXPECT_EQ(machine->asked_of(large, 1), Bytes{}) << "it is on its way";
}

// The tenant's requests get another leaf with its first job, and the claim keeps its number.
TEST(Escalation, EndsALiarInTimeThoughTheClaimantsUserBeginsAJob) {
  Policy policy = small_policy();
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.devices[0].reclaim.escalation = Escalation::kEndSession;
  Machine machine(policy);
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(64));
  const SessionId ann = machine.connect(1);
  machine.grow(ann, machine.slice(ann), mebibytes(8), std::chrono::seconds(60));
  machine.say_spent(bob);
  machine.pass_in_steps(std::chrono::milliseconds(1900));
  Peer other = peer_of(1);
  other.pid += 50;
  const SessionId anns_other = machine.broker.open_session(other, "", machine.now).value();
  ASSERT_TRUE(machine.broker.begin_job(anns_other, {"train"}, machine.now));
  machine.collect();
  machine.say_spent(bob);
  machine.pass_in_steps(std::chrono::milliseconds(200));
  EXPECT_EQ(machine.signals.size(), 1U);
}

}  // namespace
}  // namespace gpumem::core
