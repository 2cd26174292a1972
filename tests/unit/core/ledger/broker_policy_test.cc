#include <gmock/gmock.h>

#include "tests/unit/core/machine.h"

// Tenants' trees and quotas, changed while the broker runs.

namespace gpumem::core {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

// A lab of ann and bob, which has 32 of the 64 MiB at most and 16 MiB for sure; users without a rule belong
// to guests.
class BrokerPolicy : public testing::Test {
 protected:
  static Policy tree() {
    Policy policy;
    policy.devices = {device("GPU-0", mebibytes(64))};
    policy.tenants = {parent("lab", {{mebibytes(16), mebibytes(32)}}),
                      user("ann", 1, {{mebibytes(8), mebibytes(64)}}, "lab"),
                      user("bob", 2, {{{}, mebibytes(64)}}, "lab"), parent("guests", {{{}, mebibytes(16)}})};
    policy.others = {{{}, mebibytes(8)}};
    policy.others_parent = "guests";
    return policy;
  }
  Result<void> apply() {
    auto answer = machine.broker.apply(policy, machine.now, "root changed quotas");
    machine.collect();
    return answer;
  }
  TenantView view(const std::string& tenant) const {
    for (const TenantView& one : machine.broker.tenants()) {
      if (one.name == tenant) return one;
    }
    return {};
  }
  TenantRule& rule(const std::string& name) {
    return *std::ranges::find(policy.tenants, name, &TenantRule::name);
  }

  Machine machine{tree()};
  Policy policy = tree();
};

TEST_F(BrokerPolicy, ChargesMembersToTheirGroupAndHoldsThemToItsLimit) {
  const SessionId ann = machine.connect(1);
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(24));
  EXPECT_EQ(view("lab").charges.total(), mebibytes(24));
  const RequestId id = machine.grow(ann, machine.slice(ann), mebibytes(10));
  EXPECT_EQ(machine.denial(id).reason, Denial::Reason::kTenantLimit);
  EXPECT_EQ(machine.denial(id).limiting_tenant, "lab");
  machine.get(ann, machine.slice(ann), mebibytes(8));
}

TEST_F(BrokerPolicy, PutsUsersWithoutARuleBelowTheirParent) {
  const SessionId one = machine.connect(8);
  const SessionId two = machine.connect(9);
  const SessionId three = machine.connect(10);
  EXPECT_EQ(view("uid:8").parent, "guests");
  EXPECT_TRUE(machine.broker.belongs("uid:8", "guests"));
  EXPECT_FALSE(machine.broker.belongs("uid:8", "lab"));
  EXPECT_FALSE(machine.broker.belongs("nobody", "nobody"));
  machine.get(one, machine.slice(one), mebibytes(8));
  machine.get(two, machine.slice(two), mebibytes(8));
  EXPECT_EQ(machine.denial(machine.grow(three, machine.slice(three), kPiece)).limiting_tenant, "guests");
  machine.die(one);
  EXPECT_FALSE(machine.knows_tenant("uid:8"));
  EXPECT_EQ(view("guests").charges.total(), mebibytes(8));
}

TEST_F(BrokerPolicy, TurnsTheTreeUpsideDown) {
  policy.others_parent = "";
  policy.tenants = {parent("a", {{{}, mebibytes(64)}}), parent("b", {{{}, mebibytes(64)}}, "a"),
                    user("ann", 1, {{{}, mebibytes(64)}}, "b")};
  ASSERT_TRUE(apply());
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(8));
  policy.tenants = {parent("a", {{{}, mebibytes(64)}}, "b"), parent("b", {{{}, mebibytes(64)}}),
                    user("ann", 1, {{{}, mebibytes(64)}}, "a")};
  ASSERT_TRUE(apply());
  EXPECT_EQ(view("ann").parent, "a");
  EXPECT_EQ(view("a").parent, "b");
  EXPECT_EQ(view("b").parent, "");
  EXPECT_EQ(view("a").charges.total(), mebibytes(8));
  EXPECT_EQ(view("b").charges.total(), mebibytes(8));
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerPolicy, RetiresAGroupAndKeepsItsMembers) {
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(24));
  rule("ann").parent = rule("bob").parent = "";
  std::erase_if(policy.tenants, [](const TenantRule& one) { return one.name == "lab"; });
  ASSERT_TRUE(apply());
  EXPECT_FALSE(machine.knows_tenant("lab"));
  EXPECT_EQ(view("bob").charges.total(), mebibytes(24));
  EXPECT_EQ(machine.broker.devices()[0].guaranteed, mebibytes(8));
}

TEST_F(BrokerPolicy, MovesTheOthersThatAreConnected) {
  const SessionId guest = machine.connect(9);
  machine.get(guest, machine.slice(guest), mebibytes(8));
  policy.others_parent = "lab";
  ASSERT_TRUE(apply());
  EXPECT_EQ(view("uid:9").parent, "lab");
  EXPECT_EQ(view("guests").charges.total(), Bytes{0});
  EXPECT_EQ(view("lab").charges.total(), mebibytes(8));
}

TEST_F(BrokerPolicy, IsPutInForceAllOrNothing) {
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(8));
  rule("bob").quotas[0].limit = mebibytes(2);
  rule("ann").parent = "nowhere";
  const auto answer = apply();
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("'nowhere'"));
  EXPECT_EQ(view("bob").quota.limit, mebibytes(64));
  EXPECT_EQ(view("ann").parent, "lab");
  EXPECT_TRUE(machine.events_of(Event::Kind::kQuota).empty());
  EXPECT_EQ(machine.asked_of(bob), Bytes{0});
}

TEST_F(BrokerPolicy, IsToldWithItsCause) {
  ASSERT_TRUE(apply());
  const auto events = machine.events_of(Event::Kind::kQuota);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].words, "root changed quotas");
  EXPECT_EQ(events[0].tenant, "");
}

TEST_F(BrokerPolicy, LetsWaitersOfAGroupGoWhoseLimitIsRaised) {
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(24));
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(8), seconds(9));
  EXPECT_FALSE(machine.is_answered(id)) << "8 are kept for ann";
  rule("lab").quotas[0].limit = mebibytes(48);
  ASSERT_TRUE(apply());
  EXPECT_TRUE(machine.is_granted(id));
}

TEST_F(BrokerPolicy, OrdersThoseWhoWaitAnew) {
  const SessionId ann = machine.connect(1);
  const SessionId guest = machine.connect(9);
  rule("lab").quotas[0] = {{}, mebibytes(64)};
  rule("ann").quotas[0] = policy.others->front() = rule("guests").quotas[0] = {{}, mebibytes(64)};
  rule("guests").quotas[0].priority = kDefaultPriority + 1;
  ASSERT_TRUE(apply());
  const SessionId bob = machine.connect(2);
  const Grant all = machine.get(bob, machine.slice(bob), mebibytes(58));
  machine.get(bob, machine.slice(bob), mebibytes(6));
  const RequestId of_ann = machine.grow(ann, machine.slice(ann), mebibytes(8), seconds(9));
  const RequestId of_guest = machine.grow(guest, machine.slice(guest), mebibytes(58), seconds(9));
  std::swap(rule("guests").quotas[0].priority, rule("lab").quotas[0].priority);
  rule("bob").quotas[0].limit = mebibytes(6);
  ASSERT_TRUE(apply());
  ASSERT_TRUE(
      machine.broker.give_back(bob, {machine.broker.sessions().back().slices.front().id, {}}, machine.now));
  EXPECT_FALSE(machine.is_answered(of_ann) || machine.is_answered(of_guest));
  machine.die(bob);
  EXPECT_TRUE(machine.is_granted(of_ann)) << "its group has the higher priority now";
  EXPECT_FALSE(machine.is_answered(of_guest));
}

TEST_F(BrokerPolicy, MatchesLivingSessionsAnewAndTheirChargesMoveWithThem) {
  const SessionId ann = machine.connect(1);
  const SliceId slice = machine.slice(ann);
  machine.get(ann, slice, mebibytes(12));
  ASSERT_TRUE(machine.broker.charge(ann, {"GPU-0", mebibytes(3)}, machine.now));
  rule("ann").name = "anna";
  rule("anna").parent = "guests";
  rule("anna").quotas[0] = {{}, mebibytes(16)};
  ASSERT_TRUE(apply());
  EXPECT_EQ(machine.broker.tenant_name(ann), "anna");
  EXPECT_FALSE(machine.knows_tenant("ann"));
  EXPECT_EQ(view("anna").charges.total(), mebibytes(12));
  EXPECT_EQ(view("anna").outside, mebibytes(3));
  EXPECT_EQ(view("guests").charges.total(), mebibytes(12));
  EXPECT_EQ(view("guests").sessions, 1u);
  EXPECT_EQ(view("lab").charges.total(), Bytes{});
  EXPECT_EQ(view("lab").sessions, 0u);
  const RequestId more = machine.grow(ann, slice, mebibytes(4));
  EXPECT_EQ(machine.denial(more).reason, Denial::Reason::kTenantLimit);
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerPolicy, MovesWhatWaitsWithItsSession) {
  const SessionId bob = machine.connect(2);
  const SessionId ann = machine.connect(1);
  machine.get(ann, machine.slice(ann), mebibytes(30));
  const RequestId id = machine.grow(bob, machine.slice(bob), mebibytes(8), seconds(60));
  EXPECT_FALSE(machine.is_answered(id)) << "the lab may have 32";
  rule("bob").name = "rob";
  rule("rob").parent = "";
  ASSERT_TRUE(apply());
  EXPECT_TRUE(machine.is_granted(id));
  EXPECT_EQ(view("rob").charges.total(), mebibytes(8));
  machine.die(bob);
  machine.die(ann);
  EXPECT_TRUE(machine.is_as_new());
}

TEST_F(BrokerPolicy, RefusesToMakeAGroupOfAConnectedTenant) {
  const SessionId ann = machine.connect(1);
  policy.tenants = {parent("ann", {{{}, mebibytes(64)}}), user("eve", 5, {{{}, mebibytes(64)}}, "ann")};
  policy.others.reset();  // nobody else's: her session keeps the name
  policy.others_parent.clear();
  const auto refused = apply();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("'ann' cannot become the parent of"));
  machine.die(ann);
  EXPECT_TRUE(apply());
}

TEST_F(BrokerPolicy, SwitchesLendingOnAndOff) {
  const SessionId bob = machine.connect(2);
  rule("lab") = parent("lab", {{{}, mebibytes(128)}});  // what it keeps for ann is part of its limit
  rule("ann").quotas[0] = {mebibytes(16), mebibytes(64)};
  policy.devices[0].reclaim.lend_guarantees = true;
  ASSERT_TRUE(apply());
  const SliceId slice = machine.slice(bob);
  const Grant grant = machine.get(bob, slice, mebibytes(30));
  machine.get(bob, slice, mebibytes(30));
  policy.devices[0].reclaim.lend_guarantees = false;
  ASSERT_TRUE(apply());
  EXPECT_EQ(machine.code(machine.grow(bob, slice, kPiece)), Code::kResourceExhausted);
  const SessionId ann = machine.connect(1);
  const RequestId claim = machine.grow(ann, machine.slice(ann), mebibytes(16), seconds(9));
  EXPECT_EQ(machine.asked_of(bob), mebibytes(12)) << "what is lent is still owed to ann";
  ASSERT_TRUE(machine.give_back(bob, slice, grant));
  EXPECT_TRUE(machine.is_granted(claim));
}

TEST_F(BrokerPolicy, CountsNoGuaranteeForAGroupThatGoesWithIt) {
  const SessionId bob = machine.connect(2);
  machine.get(bob, machine.slice(bob), mebibytes(8));
  rule("ann").parent = rule("bob").parent = "";
  rule("ann").quotas[0] = {mebibytes(32), mebibytes(64)};
  std::erase_if(policy.tenants, [](const TenantRule& one) { return one.name == "lab"; });
  policy.others = {{mebibytes(40), mebibytes(64)}};
  policy.others_parent = "";
  const auto answer = apply();
  EXPECT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(machine.charged("bob"), mebibytes(8));
  EXPECT_FALSE(machine.knows_tenant("lab"));
}

}  // namespace
}  // namespace gpumem::core
