#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Asked back, given back, granted.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

// 64 MiB, of which 16 MiB are promised to ann and lent to bob; cid is promised nothing either.
class BrokerPressure : public testing::Test {
 protected:
  static Policy policy() {
    Policy policy = small_policy();
    policy.devices[0].reclaim.lend_guarantees = true;
    policy.tenants.push_back(user("cid", 3, {{{}, mebibytes(64)}}));
    return policy;
  }
  Machine machine{policy()};
  SessionId ann = machine.connect(1);
  SliceId anns = machine.slice(ann);
  SessionId bob = machine.connect(2);
  SliceId bobs = machine.slice(bob);
};

TEST_F(BrokerPressure, BringsAClaimWhatIsLentOfItsGuarantee) {
  machine.cooperative = true;
  machine.get(bob, bobs, mebibytes(64));
  EXPECT_TRUE(machine.is_granted(machine.grow(ann, anns, mebibytes(16)))) << "though it may not wait";
  EXPECT_EQ(machine.bells[bob], 1);
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
  EXPECT_TRUE(machine.signals.empty());
}

TEST_F(BrokerPressure, AsksForNoMoreThanIsNeededAndUntilWhen) {
  machine.get(bob, bobs, mebibytes(60));
  machine.grow(ann, anns, mebibytes(16), seconds(9));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(12));
  EXPECT_EQ(machine.asked_of(ann), Bytes{0});
  const DeviceFigures figures = machine.broker.figures(bob).devices[0];
  EXPECT_EQ(TimePoint(std::chrono::nanoseconds(figures.pressure_deadline)), machine.now + seconds(2));
  EXPECT_EQ(machine.broker.devices()[0].asked_back, mebibytes(12));
}

TEST_F(BrokerPressure, FallsWithEveryReturnAndRingsOnlyWhenItRises) {
  const Grant large = machine.get(bob, bobs, mebibytes(40));
  const Grant small = machine.get(bob, bobs, mebibytes(20));
  machine.grow(ann, anns, mebibytes(8), seconds(9));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(4));
  const SessionId second = machine.connect(1);
  const RequestId all = machine.grow(second, machine.slice(second), mebibytes(16), seconds(9));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(4)) << "a tenant's claims come one by one";
  ASSERT_TRUE(machine.give_back(bob, bobs, small));
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
  EXPECT_EQ(machine.bells[bob], 1);
  EXPECT_FALSE(machine.is_answered(all) && machine.charged("ann") > mebibytes(24));
}

TEST_F(BrokerPressure, IsRelievedWhenTheRequestGoes) {
  machine.get(bob, bobs, mebibytes(64));
  const RequestId id = machine.grow(ann, anns, mebibytes(16), seconds(9));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(16));
  machine.cancel(id);
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
  EXPECT_EQ(machine.events_of(Event::Kind::kRelieved).size(), 1u);
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerPressure, IsNotForRequestsThatMayNotWait) {
  const SessionId cid = machine.connect(3);
  machine.get(bob, bobs, mebibytes(64));
  EXPECT_EQ(machine.code(machine.grow(cid, machine.slice(cid), mebibytes(8))), Code::kResourceExhausted);
  EXPECT_EQ(machine.bells[bob], 0) << "anybody could have bob's memory given back for nothing";
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
}

TEST_F(BrokerPressure, LevelsSharesForWhoWaits) {
  machine.cooperative = true;
  const SessionId cid = machine.connect(3);
  for (int i = 0; i < 16; ++i) machine.get(bob, bobs, mebibytes(4));
  EXPECT_TRUE(machine.is_granted(machine.grow(cid, machine.slice(cid), mebibytes(24), seconds(9))));
  EXPECT_EQ(machine.charged("bob"), mebibytes(40));
  const RequestId more = machine.grow(cid, machine.slice(cid), mebibytes(24), seconds(9));
  EXPECT_FALSE(machine.is_answered(more)) << "it would have more than bob then";
  EXPECT_EQ(machine.charged("bob"), mebibytes(40));
}

TEST_F(BrokerPressure, PassesOnWhatASessionHasNotToTheNext) {
  const SessionId other = machine.connect(2);
  machine.get(bob, bobs, mebibytes(40));
  machine.get(other, machine.slice(other), mebibytes(24));
  machine.grow(ann, anns, mebibytes(16), seconds(60));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(16)) << "it holds most";
  machine.say_spent(bob);
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
  EXPECT_EQ(machine.asked_of(other), mebibytes(16));
  machine.say_spent(other);
  EXPECT_EQ(machine.asked_of(other), Bytes{0});
  const auto waiting = machine.broker.explain_session(ann, false, machine.now).value().waiting;
  ASSERT_EQ(waiting.size(), 1U);
  EXPECT_NE(waiting[0].soonest.why.find("were asked, and say that they have no more to give"),
            std::string::npos)
      << waiting[0].soonest.why;
  machine.pass_in_steps(seconds(10));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(16)) << "a word holds for a while";
}

// A plan visits all sessions that could be asked.
TEST_F(BrokerPressure, IsPlannedOnceForAllWhoSayThatTheyHaveNothing) {
  const SessionId other = machine.connect(2);
  machine.get(bob, bobs, mebibytes(10));
  machine.get(other, machine.slice(other), mebibytes(6));
  const SessionId last = machine.connect(2);
  machine.get(last, machine.slice(last), mebibytes(48));
  machine.grow(ann, anns, mebibytes(16), seconds(60));
  ASSERT_EQ(machine.asked_of(last), mebibytes(16)) << "it holds most";
  for (const SessionId each : {last, last}) EXPECT_TRUE(machine.broker.spent(each, {"GPU-0"}, machine.now));
  EXPECT_EQ(machine.asked_of(bob), Bytes{}) << "not before all that lies in sockets is read";
  EXPECT_EQ(machine.broker.next_deadline(), machine.now);
  machine.pass({});
  EXPECT_EQ(machine.asked_of(last), Bytes{});
  EXPECT_EQ(machine.asked_of(bob), mebibytes(10));
  EXPECT_EQ(machine.asked_of(other), mebibytes(6));
}

TEST_F(BrokerPressure, TakesTheWordOfNobodyWhoWasNotAsked) {
  machine.get(bob, bobs, mebibytes(64));
  machine.say_spent(bob);
  machine.say_spent(bob, 7);
  machine.say_spent(SessionId{99});
  machine.grow(ann, anns, mebibytes(16), seconds(9));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(16));
}

TEST_F(BrokerPressure, OfASessionThatEndsGoesToTheNext) {
  const SessionId other = machine.connect(2);
  machine.get(bob, bobs, mebibytes(40));
  machine.get(other, machine.slice(other), mebibytes(24));
  const RequestId id = machine.grow(ann, anns, mebibytes(16), seconds(60));
  machine.lose_lane(bob);
  EXPECT_EQ(machine.asked_of(other), mebibytes(16)) << "what bob had mapped stays mapped";
  machine.die(bob);
  EXPECT_TRUE(machine.is_granted(id));
  EXPECT_EQ(machine.asked_of(other), Bytes{0});
  machine.die(ann);
  machine.die(other);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerPressure, LeavesNoTimerBehindWhenWhoHadNothingToGiveEnds) {
  machine.get(bob, bobs, mebibytes(64));
  const RequestId id = machine.grow(ann, anns, mebibytes(16), seconds(60));
  machine.say_spent(bob);
  machine.cancel(id);
  machine.die(bob);
  machine.pass_in_steps(seconds(30));
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerPressure, NeverBefallsWhoIsWithinItsGuarantee) {
  machine.get(ann, anns, mebibytes(16));
  machine.get(bob, bobs, mebibytes(48));
  const SessionId cid = machine.connect(3);
  machine.grow(cid, machine.slice(cid), mebibytes(24), seconds(9));
  EXPECT_EQ(machine.asked_of(ann), Bytes{0});
  EXPECT_EQ(machine.asked_of(bob), mebibytes(24));
}

TEST_F(BrokerPressure, IsToldInOrder) {
  machine.cooperative = true;
  machine.get(bob, bobs, mebibytes(64));
  machine.events.clear();
  machine.grow(ann, anns, mebibytes(16), seconds(9));
  std::vector<Event::Kind> kinds;
  for (const Event& event : machine.events) {
    if (kinds.empty() || kinds.back() != event.kind) kinds.push_back(event.kind);
  }
  using Kind = Event::Kind;
  ASSERT_GE(kinds.size(), 5u);
  EXPECT_THAT(std::vector(kinds.begin(), kinds.begin() + 3),
              ElementsAre(Kind::kWaiting, Kind::kPressure, Kind::kReturned));
  EXPECT_EQ(kinds.back(), Kind::kGranted);
  const Event pressure = machine.events_of(Kind::kPressure).at(0);
  EXPECT_EQ(pressure.tenant, "bob");
  EXPECT_EQ(pressure.session, bob);
  EXPECT_EQ(pressure.bytes, mebibytes(16));
  EXPECT_EQ(pressure.deadline, machine.now + seconds(2));
  EXPECT_THAT(pressure.words, testing::HasSubstr("guaranteed"));
}

TEST_F(BrokerPressure, IsPutOnWhoOwesAfterItsLimitWasLoweredUntilItHasPaid) {
  machine.get(bob, bobs, mebibytes(24));
  machine.get(bob, bobs, mebibytes(8));
  Policy policy = BrokerPressure::policy();
  policy.tenants[1].quotas[0].limit = mebibytes(24);
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  const RequestId more = machine.grow(bob, bobs, kPiece);
  EXPECT_EQ(machine.denial(more).reason, Denial::Reason::kDebt);
  EXPECT_EQ(machine.events_of(Event::Kind::kDebt).at(0).bytes, mebibytes(8));
  machine.heed(bob);
  EXPECT_LE(machine.charged("bob"), mebibytes(24));
  EXPECT_EQ(machine.events_of(Event::Kind::kDebtPaid).size(), 1u);
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
}

TEST_F(BrokerPressure, IsPutOnWhoDeclaresMoreThanItsLimitLeaves) {
  Policy policy = BrokerPressure::policy();
  policy.tenants[1].quotas[0].limit = mebibytes(32);
  ASSERT_TRUE(machine.broker.apply(policy, machine.now));
  machine.get(bob, bobs, mebibytes(20));
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(20)}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", {}}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
}

TEST_F(BrokerPressure, GrantsWhatComesBackOfMissingMemoryAsWell) {
  Machine starved(policy(), Machine::Start::kEmpty);
  starved.driver.steal(0, mebibytes(20));
  starved.pass({});
  starved.pass_in_steps(seconds(10));
  const SessionId other = starved.connect(2);
  starved.get(other, starved.slice(other), mebibytes(44));
  const SessionId claimant = starved.connect(1);
  const RequestId id = starved.grow(claimant, starved.slice(claimant), mebibytes(16), seconds(60));
  EXPECT_EQ(starved.asked_of(other), mebibytes(16));
  starved.driver.restore(0);
  starved.pass_in_steps(seconds(10));
  EXPECT_TRUE(starved.is_granted(id));
  EXPECT_EQ(starved.asked_of(other), Bytes{0});
}

}  // namespace
}  // namespace gpumem::core
