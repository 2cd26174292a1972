#include <gmock/gmock.h>

#include "tests/unit/core/arbiter/arbiter_fixture.h"

// Requests for several devices.

namespace gpumem::core {
namespace {

using testing::ElementsAre;

class ArbiterJoint : public ArbiterWorld {
 protected:
  TenantId ann = tenant(burst());
  TenantId bob = tenant(burst());
  TenantId cid = tenant(burst());
};

TEST_F(ArbiterJoint, IsGrantedWhereItFitsOnAllDevices) {
  ledger.reserve(cid, 1, {95});
  const auto both = ask_both(ann, 10);
  EXPECT_THAT(admitted(), ElementsAre());
  EXPECT_EQ(ledger.used(ann, 0), Bytes{0}) << "it holds nothing while it waits";
  give_back(cid, 5, 1);
  EXPECT_THAT(admitted(), ElementsAre(both));
  EXPECT_EQ(ledger.used(ann, 0), Bytes{10});
  EXPECT_EQ(ledger.used(ann, 1), Bytes{10});
}

TEST_F(ArbiterJoint, DoesNotWaitForAnotherThatWaitsForIt) {
  ledger.reserve(cid, 0, {50});
  ledger.reserve(cid, 1, {50});
  const auto one = ask(ann, {{{}, 0, {60}, {60}}, {{}, 1, {10}, {10}}});
  const auto two = ask(bob, {{{}, 0, {10}, {10}}, {{}, 1, {60}, {60}}});
  EXPECT_THAT(admitted(), ElementsAre());
  give_back(cid, 50, 0);
  EXPECT_THAT(admitted(), ElementsAre(one));
  give_back(cid, 50, 1);
  EXPECT_THAT(admitted(), ElementsAre(two));
}

TEST_F(ArbiterJoint, DoesNotOvertakeAnEarlierOverdueOneOnAnotherDevice) {
  ledger.reserve(cid, 1, {50});
  const auto old = ask(bob, 60, 1);
  pass(kAging);
  const auto both = ask_both(ann, 10);
  EXPECT_THAT(admitted(), ElementsAre()) << "first on one device, but bob waits on the other";
  give_back(cid, 10, 1);
  EXPECT_THAT(admitted(), ElementsAre(old));
  give_back(cid, 10, 1);
  EXPECT_THAT(admitted(), ElementsAre(both));
}

TEST_F(ArbiterJoint, PassesOneOnAnotherDeviceThatIsNotOverdue) {
  ledger.reserve(cid, 1, {50});
  ask(bob, 60, 1);
  const auto both = ask_both(ann, 10);
  EXPECT_THAT(admitted(), ElementsAre(both));
}

TEST_F(ArbiterJoint, LeavesAllItsQueuesWhenItIsTakenAway) {
  ledger.reserve(cid, 0, {100});
  const auto both = ask_both(ann, 10);
  EXPECT_EQ(arbiter.waiting(0) + arbiter.waiting(1), 2u);
  EXPECT_TRUE(arbiter.remove(RequestId{both}));
  EXPECT_EQ(arbiter.waiting(0) + arbiter.waiting(1), 0u);
  EXPECT_FALSE(arbiter.next(0) || arbiter.next(1));
  EXPECT_EQ(arbiter.next_deadline(), std::nullopt);
}

TEST_F(ArbiterJoint, IsAClaimOnlyIfItIsOneOnEveryDevice) {
  const TenantId eve = ledger.add_tenant(Quotas{promise(40), burst()});
  const TenantId fay = tenant(promise(40));
  ledger.reserve(cid, 1, {55});
  const auto partly = ask_both(eve, 10);
  const auto wholly = ask_both(fay, 10);
  EXPECT_FALSE(arbiter.is_claim(RequestId{partly}, 0));
  EXPECT_TRUE(arbiter.is_claim(RequestId{wholly}, 0));
  EXPECT_TRUE(arbiter.is_claim(RequestId{wholly}, 1));
  EXPECT_THAT(admitted(), ElementsAre(wholly)) << "5 are free on one device beyond what is kept";
  give_back(cid, 5, 1);
  EXPECT_THAT(admitted(), ElementsAre(partly));
}

TEST_F(ArbiterJoint, HoldsNothingOnOneDeviceOnceItIsNoClaimOnAnother) {
  ledger.set_lending(1, true);
  const TenantId eve = tenant(promise(40));
  ledger.reserve(cid, 1, {80});
  const auto claim = ask_both(eve, 40);
  const auto other = ask(ann, 10, 1);
  EXPECT_THAT(admitted(), ElementsAre());
  EXPECT_TRUE(arbiter.is_claim(RequestId{claim}, 1));
  const auto revision = arbiter.revision(1);
  ledger.charge_outside(eve, 0, {30});
  EXPECT_THAT(admitted(), ElementsAre(other));
  EXPECT_NE(arbiter.revision(1), revision);
  EXPECT_FALSE(arbiter.is_claim(RequestId{claim}, 1));
}

// Else a tenant at its limit on one device would stop the other device for everybody.
TEST_F(ArbiterJoint, HoldsUpNobodyWhileItsLimitOnAnotherDeviceHasNoRoom) {
  const TenantId limited = ledger.add_tenant(Quotas{burst(), promise(0, 20)});
  ledger.reserve(limited, 1, {20});
  const auto both = ask_both(limited, 10);
  for (const bool is_overdue : {false, true}) {
    if (is_overdue) pass(kAging);
    const auto others = ask(ann, 1);
    EXPECT_THAT(admitted(), ElementsAre(others));
    EXPECT_TRUE(arbiter.full(0).empty() && arbiter.held_back(0).empty()) << "for it, here, nobody is asked";
    EXPECT_EQ(arbiter.full(1).size(), 1U);
  }
  const auto own = ask(limited, 1);
  EXPECT_THAT(admitted(), ElementsAre()) << "it is overdue";
  give_back(limited, 10, 1);
  EXPECT_THAT(admitted(), ElementsAre(both, own));
}

TEST_F(ArbiterJoint, HoldsUpItsGroupAloneIfThatIsAtItsLimitOnAnotherDevice) {
  const TenantId group = ledger.add_tenant(Quotas{promise(0, 20), promise(0, 20)});
  const TenantId member = tenant(burst(), group);
  const TenantId beside = tenant(burst(), group);
  ledger.reserve(beside, 1, {20});
  const auto both = ask_both(member, 10);
  const auto later = ask(beside, 10), others = ask(ann, 1);
  EXPECT_THAT(admitted(), ElementsAre(others)) << "no stream of its neighbours keeps it from both devices";
  EXPECT_TRUE(arbiter.held_back(0).empty());
  EXPECT_EQ(arbiter.held_back(1).size(), 1U);
  ledger.reserve(beside, 0, {15});
  EXPECT_THAT(admitted(), ElementsAre());
  EXPECT_EQ(arbiter.held_back(0).size(), 1U) << "for a request over a limit on both devices, both are asked";
  EXPECT_EQ(arbiter.held_back(1).size(), 1U);
  give_back(beside, 15, 0);
  give_back(beside, 15, 1);
  EXPECT_THAT(admitted(), ElementsAre(both, later));
}

// Of more devices than the queue has keys.
TEST(ArbiterOfSixDevices, PassesARequestThatLacksRoomOnOneOfItsDevices) {
  Ledger ledger(std::vector<Bytes>(6, Bytes{100}));
  Arbiter arbiter(ledger, std::vector<Bytes>(6, Bytes{1}), std::chrono::seconds(30));
  for (const DeviceIndex full : {1U, 5U}) {
    std::vector<Quota> quotas(6, Quota{{}, Bytes{100}});
    quotas[full].limit = Bytes{5};
    const TenantId tenant = ledger.add_tenant(quotas);
    auto ask = [&, id = full * 10](std::optional<DeviceIndex> other) mutable {
      Request::Parts parts{{SliceId{1}, 0, {10}, {10}}};
      if (other) parts.push_back({SliceId{2}, *other, {10}, {10}});
      arbiter.add({.id = RequestId{++id},
                   .session = SessionId{1},
                   .tenant = tenant,
                   .parts = std::move(parts),
                   .asked = {},
                   .wait = {},
                   .deadline = TimePoint::max()});
      return RequestId{id};
    };
    ask(full);
    std::vector<RequestId> later{ask(4), ask({})};
    std::vector<RequestId> granted;
    for (const Granted& one : arbiter.admit()) granted.push_back(one.request.id);
    EXPECT_THAT(granted, testing::UnorderedElementsAreArray(later)) << full;
  }
}

TEST_F(ArbiterJoint, AreAllGrantedInTheEndWhateverTheirDevices) {
  ledger.reserve(cid, 0, {100});
  ledger.reserve(cid, 1, {100});
  std::size_t granted = 0;
  for (int i = 0; i < 30; ++i) {
    if (i % 3 == 0) ask_both(ann, 3);
    if (i % 3 == 1) ask(bob, 2, 0);
    if (i % 3 == 2) ask(bob, 2, 1);
  }
  for (int i = 0; i < 100; ++i) {
    give_back(cid, 1, static_cast<DeviceIndex>(i % 2));
    granted += admitted().size();
  }
  EXPECT_EQ(granted, 30u);
}

}  // namespace
}  // namespace gpumem::core
