#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// What sessions of one tenant are asked to give back for each other, beside what they are asked for others.

namespace gpumem::core {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::Pair;

// 64 MiB, of which 16 MiB are promised to ann and lent; cid is promised nothing, as bob.
Policy lending(Escalation escalation = Escalation::kWait) {
  Policy policy = small_policy();
  policy.devices[0].reclaim.lend_guarantees = true;
  policy.devices[0].reclaim.escalation = escalation;
  policy.tenants.push_back(user("cid", 3, {{{}, mebibytes(64)}}));
  return policy;
}

class BrokerSiblings : public testing::Test {
 protected:
  Machine machine{lending()};
  SessionId bob = machine.connect(2);
  SliceId bobs = machine.slice(bob);
};

TEST_F(BrokerSiblings, AreAskedAndNothingFollows) {
  const SessionId other = machine.connect(2);
  const Grant small = machine.get(bob, bobs, mebibytes(8));
  machine.get(bob, bobs, mebibytes(56));
  machine.events.clear();
  const RequestId id = machine.grow(other, machine.slice(other), mebibytes(8), seconds(60));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  EXPECT_EQ(machine.bells[bob], 1);
  EXPECT_THAT(machine.events_of(Event::Kind::kPressure).at(0).words, testing::HasSubstr("its tenant waits"));
  machine.pass_in_steps(seconds(30));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  EXPECT_TRUE(machine.signals.empty());
  ASSERT_TRUE(machine.give_back(bob, bobs, small));
  EXPECT_TRUE(machine.is_granted(id));
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
}

TEST_F(BrokerSiblings, AndWhomAPersonNamesAreAskedUntilTheyHaveGivenSoMuch) {
  const Peer own{.pid = 1, .uid = 2, .gids = {}, .command = "gpumem"};
  const Grant first = machine.get(bob, bobs, mebibytes(8));
  machine.get(bob, bobs, mebibytes(24));
  const auto ask = [&](const Peer& by, bool is_admin) {
    return machine.broker.ask_back(bob, "GPU-0", mebibytes(12), {by, is_admin}, machine.now);
  };
  const Peer other{.pid = 1, .uid = 9, .gids = {}, .command = "gpumem"};
  EXPECT_EQ(ask(other, false).error().code, Code::kPermissionDenied);
  ASSERT_EQ(ask(own, false)->bytes, mebibytes(12));
  machine.collect();
  EXPECT_EQ(machine.asked_of(bob), mebibytes(12));
  EXPECT_THAT(machine.events_of(Event::Kind::kPressure).at(0).words,
              testing::HasSubstr("uid 2 has asked for it (pid 1, gpumem)"));
  ASSERT_TRUE(machine.give_back(bob, bobs, first));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(4));
  machine.say_spent(bob);
  EXPECT_EQ(machine.asked_of(bob), Bytes{0}) << "it has no more";
  ASSERT_TRUE(ask(other, true));
  machine.collect();
  EXPECT_EQ(machine.asked_of(bob), mebibytes(12)) << "of what it has now";
  machine.pass_in_steps(seconds(60));
  EXPECT_EQ(machine.asked_of(bob), Bytes{0}) << "for a minute";
  EXPECT_TRUE(machine.signals.empty());
  machine.die(bob);
  EXPECT_EQ(ask(other, true).error().code, Code::kNotFound);
}

TEST_F(BrokerSiblings, AreAskedOneAfterTheOtherAsTheyHaveNothing) {
  const SessionId other = machine.connect(2);
  machine.get(bob, bobs, mebibytes(40));
  machine.get(other, machine.slice(other), mebibytes(24));
  const SessionId third = machine.connect(2);
  machine.grow(third, machine.slice(third), mebibytes(8), seconds(60));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  machine.say_spent(bob);
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
  EXPECT_EQ(machine.asked_of(other), mebibytes(8));
  machine.say_spent(other);
  EXPECT_EQ(machine.asked_of(other), Bytes{0}) << "nobody has anything";
}

TEST_F(BrokerSiblings, AreAskedForAllOfItOrNothing) {
  const SessionId other = machine.connect(2);
  machine.get(bob, bobs, mebibytes(8));
  machine.get(other, machine.slice(other), mebibytes(56));
  machine.grow(other, machine.slice(other), mebibytes(10), seconds(60));
  EXPECT_EQ(machine.asked_of(bob), Bytes{0}) << "8 would be given for nothing";
  EXPECT_EQ(machine.asked_of(other), Bytes{0});
}

TEST_F(BrokerSiblings, ServeTheOlderOfTwoRequests) {
  const SessionId other = machine.connect(2);
  machine.get(bob, bobs, mebibytes(32));
  machine.get(other, machine.slice(other), mebibytes(32));
  machine.grow(bob, bobs, mebibytes(4), seconds(60));
  EXPECT_EQ(machine.asked_of(other), mebibytes(4));
  machine.grow(other, machine.slice(other), mebibytes(4), seconds(60));
  EXPECT_EQ(machine.asked_of(other), mebibytes(4));
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
}

TEST_F(BrokerSiblings, AreAskedInPlaceOfOneThatDoesNotAnswer) {
  const SessionId stopped = machine.connect(2), other = machine.connect(2);
  machine.get(stopped, machine.slice(stopped), mebibytes(44));
  machine.get(other, machine.slice(other), mebibytes(20));
  machine.grow(bob, bobs, mebibytes(8), seconds(120));
  EXPECT_EQ(machine.asked_of(stopped), mebibytes(8));
  machine.pass_in_steps(seconds(3));
  EXPECT_EQ(machine.asked_of(stopped), Bytes{0});
  EXPECT_EQ(machine.asked_of(other), mebibytes(8));
}

// ---- Beside what others ask ----

// Who owes memory that it has declared owes it as before.
TEST(BrokerSiblingsAndOthers, LeaveADeclaredDebtItsForce) {
  for (const bool someone_waits : {false, true}) {
    Policy policy = lending(Escalation::kEndSession);
    policy.tenants[1].quotas[0].limit = mebibytes(32);
    Machine machine(policy);
    const SessionId bob = machine.connect(2), other = machine.connect(2);
    machine.get(bob, machine.slice(bob), mebibytes(20));
    if (someone_waits) machine.grow(other, machine.slice(other), mebibytes(20), minutes(5));
    ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(20)}, machine.now));
    machine.collect();
    EXPECT_EQ(machine.asked_of(bob), mebibytes(someone_waits ? 28 : 8));
    machine.pass_in_steps(seconds(3));
    EXPECT_THAT(machine.signals, ElementsAre(Pair(bob, Signal::kTerminate)));
  }
}

TEST(BrokerSiblingsAndOthers, LeaveWhatIsDeclaredBesideThePool) {
  Policy policy = lending();
  policy.tenants[0].quotas[0].guarantee = mebibytes(64);
  policy.tenants[1].quotas[0].limit = mebibytes(32);
  Machine machine(policy);
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(20));
  ASSERT_TRUE(machine.broker.charge(bob, {"GPU-0", mebibytes(20)}, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(bob), mebibytes(8));
  const SessionId ann = machine.connect(1);
  machine.grow(ann, machine.slice(ann), mebibytes(64), minutes(5));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(28));
}

TEST(BrokerSiblingsAndOthers, AreTakenAtTheirWordWhileOneIsAskedByForce) {
  Policy policy = lending();
  policy.tenants[1].quotas[0].limit = mebibytes(60);
  Machine machine(policy);
  const SessionId a = machine.connect(2), b = machine.connect(2), c = machine.connect(2);
  const SliceId as = machine.slice(a);
  machine.get(a, as, mebibytes(30));
  machine.get(b, machine.slice(b), mebibytes(20));
  machine.get(c, machine.slice(c), mebibytes(10));
  machine.grow(a, as, mebibytes(8), minutes(5));
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  const SessionId ann = machine.connect(1);
  machine.grow(ann, machine.slice(ann), mebibytes(8), minutes(5));
  EXPECT_EQ(machine.asked_of(a), mebibytes(4)) << "for ann's claim";
  EXPECT_EQ(machine.asked_of(b), mebibytes(4));
  machine.say_spent(b);
  EXPECT_EQ(machine.asked_of(b), Bytes{}) << "it has said that it has nothing";
  EXPECT_EQ(machine.asked_of(c), mebibytes(4)) << "the next one is asked";
  for (int i = 0; i < 20; ++i) machine.say_spent(b);
  EXPECT_LE(machine.bells[b], 2);
  machine.pass_in_steps(seconds(60));
  EXPECT_EQ(machine.asked_of(c), mebibytes(4)) << "still nobody but b";
}

// The keeper has let go of all that it was asked for by force.
TEST(BrokerSiblingsAndOthers, AreNotEndedForEachOther) {
  for (const bool own : {false, true}) {
    Machine machine(lending(Escalation::kEndSession));
    const SessionId holder = machine.connect(2), keeper = machine.connect(2);
    const SliceId slice = machine.slice(holder);
    const Grant shared = machine.get(holder, slice, mebibytes(8));
    machine.get(holder, slice, mebibytes(32));
    machine.get(keeper, machine.slice(keeper), mebibytes(24));
    HandleBytes handle{};
    handle.back() = 1;
    ASSERT_TRUE(
        machine.broker.export_handle(holder, {slice, Machine::leases_of(shared)}, handle, machine.now));
    auto imported = machine.broker.import_handle(keeper, {handle}, machine.now);
    ASSERT_TRUE(imported);
    for (const auto& [lease, extent] : imported->leases) {
      machine.driver.hold(extent.id);
      machine.held[keeper].push_back(extent.id);
    }
    if (own) machine.grow(holder, slice, mebibytes(12), minutes(5));
    const SessionId ann = machine.connect(1);
    machine.grow(ann, machine.slice(ann), mebibytes(8), minutes(5));
    EXPECT_EQ(machine.asked_of(holder), mebibytes(8));
    machine.stop_using(keeper, shared);
    ASSERT_TRUE(machine.broker.release_import(keeper, {imported->id}, machine.now));
    machine.collect();
    machine.pass_in_steps(seconds(3));
    EXPECT_THAT(machine.signals, ElementsAre(Pair(holder, Signal::kTerminate)));
  }
}

TEST(BrokerSiblingsAndOthers, DoNotAskAnImporterForItsOwnRequest) {
  Machine machine(lending());
  const SessionId b = machine.connect(2), w = machine.connect(2);
  const SliceId slice = machine.slice(b);
  const Grant shared = machine.get(b, slice, mebibytes(64));
  HandleBytes handle{};
  handle.back() = 1;
  ASSERT_TRUE(machine.broker.export_handle(b, {slice, Machine::leases_of(shared)}, handle, machine.now));
  auto imported = machine.broker.import_handle(w, {handle}, machine.now);
  ASSERT_TRUE(imported);
  machine.grow(w, machine.slice(w), mebibytes(8), minutes(5));
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  EXPECT_EQ(machine.asked_of(w), Bytes{}) << "it waits itself";
}

TEST(BrokerSiblingsAndOthers, OutliveReloads) {
  Machine machine(lending());
  const SessionId b = machine.connect(2), w = machine.connect(2);
  machine.get(b, machine.slice(b), mebibytes(64));
  machine.grow(w, machine.slice(w), mebibytes(8), minutes(5));
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  Policy other = lending();
  other.tenants[1] = user("bill", 2, {{{}, mebibytes(64)}}, "group");
  other.tenants.push_back(parent("group", {{{}, mebibytes(64)}}));
  ASSERT_TRUE(machine.broker.apply(other, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  ASSERT_TRUE(machine.broker.apply(lending(), machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  machine.die(w);
  EXPECT_EQ(machine.asked_of(b), Bytes{});
  machine.die(b);
  EXPECT_EQ(machine.broker.next_deadline(), std::nullopt);
}

TEST(BrokerSiblingsAndOthers, OutliveARestart) {
  Machine machine(lending());
  const SessionId b = machine.connect(2), w = machine.connect(2);
  const SliceId bs = machine.slice(b), ws = machine.slice(w);
  const Grant grant = machine.get(b, bs, mebibytes(64));
  machine.grow(w, ws, mebibytes(8), minutes(5));
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  machine.restart(lending());
  ASSERT_TRUE(machine.resume(w, {ws}, {}));
  machine.grow(w, ws, mebibytes(8), minutes(5));
  machine.pass_in_steps(seconds(1));
  ASSERT_TRUE(machine.resume(b, {bs}, {grant}));
  machine.pass_in_steps(seconds(1));
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  Policy none = lending();
  none.tenants.erase(none.tenants.begin() + 1);
  none.tenants.push_back(user("bert", 2, {{{}, mebibytes(64)}}));
  ASSERT_TRUE(machine.broker.apply(none, machine.now));
  machine.collect();
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  machine.lose_lane(w);
  EXPECT_EQ(machine.asked_of(b), Bytes{});
  machine.die(w);
  machine.die(b);
}

TEST(BrokerSiblingsAndOthers, AreNotAskedAgainAndAgain) {
  Machine machine(lending());
  const SessionId b = machine.connect(2), c = machine.connect(2), w = machine.connect(2);
  const SliceId bs = machine.slice(b);
  const Grant kept = machine.get(b, bs, mebibytes(40));
  machine.get(c, machine.slice(c), mebibytes(24));
  machine.grow(w, machine.slice(w), mebibytes(8), minutes(5));
  EXPECT_EQ(machine.asked_of(b), mebibytes(8));
  ASSERT_TRUE(machine.keep_but_give_back(b, bs, kept));
  machine.pass_in_steps(seconds(30));
  machine.say_spent(b);
  EXPECT_EQ(machine.asked_of(c), mebibytes(8));
  machine.pass_in_steps(seconds(120));
  EXPECT_LE(machine.bells[b] + machine.bells[c], 30);
  EXPECT_TRUE(machine.signals.empty());
}

// ---- On two devices ----

Policy two_devices() {
  Policy policy;
  policy.devices = {device("GPU-0", mebibytes(64)), device("GPU-1", mebibytes(64))};
  const std::vector<Quota> all(2, Quota{{}, mebibytes(64)});
  policy.tenants = {user("ann", 1, all), user("bob", 2, all)};
  return policy;
}

// b waits for another device, a crosswise for that of b.
TEST(BrokerSiblingsAndOthers, AreAskedWhateverTheyWaitForElsewhere) {
  Machine machine(two_devices());
  const SessionId a = machine.connect(2), b = machine.connect(2);
  machine.get(a, machine.slice(a, {}, "GPU-0"), mebibytes(64));
  machine.get(b, machine.slice(b, {}, "GPU-1"), mebibytes(64));
  machine.grow(a, machine.slice(a, {}, "GPU-1"), mebibytes(4), minutes(5));
  machine.grow(b, machine.slice(b, {}, "GPU-0"), mebibytes(4), minutes(5));
  EXPECT_EQ(machine.asked_of(b, 1), mebibytes(4));
  EXPECT_EQ(machine.asked_of(a, 0), mebibytes(4));
}

}  // namespace
}  // namespace gpumem::core
