#include <gmock/gmock.h>

#include "tests/unit/core/arbiter/arbiter_fixture.h"

// Who goes first: docs/arbiter.md.

namespace gpumem::core {
namespace {

using testing::ElementsAre;

class ArbiterOrder : public ArbiterWorld {
 protected:
  TenantId holder = tenant(burst());
};

TEST_F(ArbiterOrder, PutsTheHigherPriorityFirst) {
  const TenantId low = tenant(burst(100, 4));
  const TenantId high = tenant(burst(100, 6));
  ledger.reserve(holder, 0, {100});
  const auto later = ask(low, 10);
  const auto sooner = ask(high, 40);
  give_back(holder, 50);
  EXPECT_THAT(admitted(), ElementsAre(sooner, later));
}

TEST_F(ArbiterOrder, PutsTheSmallerShareAfterTheGrantFirst) {
  const TenantId some = tenant(burst());
  const TenantId more = tenant(burst());
  ledger.reserve(holder, 0, {60});
  ledger.reserve(some, 0, {10});
  ledger.reserve(more, 0, {30});
  const auto later = ask(more, 10);
  const auto sooner = ask(some, 25);
  give_back(holder, 30);
  EXPECT_THAT(admitted(), ElementsAre(sooner)) << "35 against 40";
  give_back(holder, 5);
  EXPECT_THAT(admitted(), ElementsAre(later));
}

TEST_F(ArbiterOrder, CountsAShareByItsWeight) {
  const TenantId light = tenant(burst(100));
  const TenantId heavy = tenant(burst(300));
  ledger.reserve(holder, 0, {100});
  ask(light, 20);
  const auto sooner = ask(heavy, 50);
  give_back(holder, 50);
  EXPECT_THAT(admitted(), ElementsAre(sooner)) << "50/300 against 20/100";
}

TEST_F(ArbiterOrder, PutsWhoCameFirstFirstWhereSharesAreEqual) {
  const TenantId one = tenant(burst());
  const TenantId two = tenant(burst());
  ledger.reserve(holder, 0, {100});
  const auto sooner = ask(two, 10);
  const auto later = ask(one, 10);
  give_back(holder, 20);
  EXPECT_THAT(admitted(), ElementsAre(sooner, later));
}

TEST_F(ArbiterOrder, ComparesGroupsAndNotTheirMembers) {
  const TenantId crowd = tenant(burst());
  const TenantId alone = tenant(burst());
  const TenantId ann = tenant(burst(), crowd);
  const TenantId bob = tenant(burst(), crowd);
  ledger.reserve(holder, 0, {80});
  ledger.reserve(ann, 0, {20});
  ask(bob, 5);
  const auto sooner = ask(alone, 15);
  give_back(holder, 15);
  EXPECT_THAT(admitted(), ElementsAre(sooner)) << "bob has nothing, but his group has 20";
}

TEST_F(ArbiterOrder, FillsUpToTheWeightedSharesWhereEverybodyAsks) {
  const TenantId one = tenant(burst(100));
  const TenantId three = tenant(burst(300));
  for (int i = 0; i < 100; ++i) {
    ask(one, 1);
    ask(three, 1);
  }
  EXPECT_EQ(admitted().size(), 100u);
  EXPECT_EQ(ledger.used(one, 0), Bytes{25});
  EXPECT_EQ(ledger.used(three, 0), Bytes{75});
}

TEST_F(ArbiterOrder, LetsNobodyPassTheFirstWhileMemoryForItComesBack) {
  const TenantId low = tenant(burst(100, 4));
  const TenantId high = tenant(burst(100, 6));
  ledger.reserve(holder, 0, {100});
  const auto large = ask(high, 50);
  const auto small = ask(low, 1);
  give_back(holder, 49);
  EXPECT_THAT(admitted(), ElementsAre());
  give_back(holder, 2);
  EXPECT_THAT(admitted(), ElementsAre(large, small));
}

TEST_F(ArbiterOrder, LetsNobodyOvertakeWhatIsOverdue) {
  const TenantId low = tenant(burst(100, 0));
  const TenantId high = tenant(burst(100, 9));
  ledger.reserve(holder, 0, {100});
  const auto old = ask(low, 50);
  EXPECT_EQ(arbiter.next_deadline(), now + kAging);
  pass(kAging);
  const auto young = ask(high, 1);
  give_back(holder, 49);
  EXPECT_THAT(admitted(), ElementsAre());
  give_back(holder, 2);
  EXPECT_THAT(admitted(), ElementsAre(old, young));
}

TEST_F(ArbiterOrder, DoesNotAgeBeforeTheTime) {
  const TenantId low = tenant(burst(100, 0));
  const TenantId high = tenant(burst(100, 9));
  ledger.reserve(holder, 0, {100});
  ask(low, 50);
  pass(kAging - std::chrono::nanoseconds(1));
  const auto young = ask(high, 1);
  give_back(holder, 50);
  EXPECT_THAT(admitted(), ElementsAre(young));
}

TEST_F(ArbiterOrder, AgesAnewWhenTheAgingIsChanged) {
  const TenantId low = tenant(burst(100, 0));
  const TenantId high = tenant(burst(100, 9));
  ledger.reserve(holder, 0, {100});
  const auto old = ask(low, 1);
  const auto young = ask(high, 1);
  pass(std::chrono::seconds(2));
  arbiter.set_aging(std::chrono::seconds(1), now);
  give_back(holder, 1);
  EXPECT_THAT(admitted(), ElementsAre(old));
  arbiter.set_aging(std::chrono::seconds(60), now);
  EXPECT_EQ(arbiter.next_deadline(), TimePoint{} + std::chrono::seconds(60));
  give_back(holder, 1);
  EXPECT_THAT(admitted(), ElementsAre(young));
}

TEST_F(ArbiterOrder, HoldsNobodyUpForAMemberOfAGroupThatIsAtItsLimit) {
  const TenantId group = tenant(promise(0, 20));
  const TenantId member = tenant(burst(), group);
  const TenantId other = tenant(burst());
  ledger.reserve(member, 0, {20});
  const auto held_up = ask(member, 5);
  const auto next = ask(other, 10);
  EXPECT_THAT(admitted(), ElementsAre(next));
  give_back(member, 5);
  EXPECT_THAT(admitted(), ElementsAre(held_up));
}

TEST_F(ArbiterOrder, PutsClaimsFirstInTheOrderTheyCame) {
  const TenantId ann = tenant(promise(20));
  const TenantId bob = tenant(promise(20));
  const TenantId high = tenant(burst(100, 9));
  ledger.reserve(holder, 0, {60});
  ask(high, 10);
  const auto first = ask(bob, 20);
  const auto second = ask(ann, 20);
  EXPECT_THAT(admitted(), ElementsAre(first, second));
}

TEST_F(ArbiterOrder, LetsTheFirstInItsGroupsOrderClaimWhatTheGroupIsPromised) {
  const TenantId group = tenant(promise(40));
  const TenantId ann = tenant(burst(), group);
  const TenantId bob = tenant(burst(), group);
  ledger.reserve(holder, 0, {60});
  ledger.reserve(ann, 0, {10});
  const auto of_ann = ask(ann, 20);
  const auto of_bob = ask(bob, 25);
  EXPECT_TRUE(arbiter.is_claim(RequestId{of_bob}, 0)) << "25 against 30";
  EXPECT_FALSE(arbiter.is_claim(RequestId{of_ann}, 0));
  EXPECT_THAT(admitted(), ElementsAre(of_bob)) << "5 of the group's guarantee are left";
}

TEST_F(ArbiterOrder, KeepsForAClaimWhatItWaitsForWhereGuaranteesAreLent) {
  ledger.set_lending(0, true);
  const TenantId ann = tenant(promise(40));
  const TenantId other = tenant(burst());
  ledger.reserve(holder, 0, {80});
  const auto claim = ask(ann, 40);
  ask(other, 5);
  EXPECT_THAT(admitted(), ElementsAre()) << "20 are free, and spoken for";
  EXPECT_EQ(arbiter.claimed(0), Bytes{40});
  give_back(holder, 20);
  EXPECT_THAT(admitted(), ElementsAre(claim));
  give_back(holder, 5);
  EXPECT_EQ(admitted().size(), 1u);
}

TEST_F(ArbiterOrder, LendsIdleGuaranteesAsLongAsNobodyClaimsThem) {
  const TenantId ann = tenant(promise(40));
  const auto all = ask(holder, 90);
  EXPECT_THAT(admitted(), ElementsAre()) << "40 are promised";
  ledger.set_lending(0, true);
  EXPECT_THAT(admitted(), ElementsAre(all));
  EXPECT_EQ(ledger.unmet(ann, 0), Bytes{40});
}

TEST_F(ArbiterOrder, GrantsTheWishToWhoIsAloneAndTheLeastToWhoIsNot) {
  const TenantId other = tenant(burst());
  ask(other, {{{}, 0, {90}, {10}}});
  const auto alone = admit();
  ASSERT_EQ(alone.size(), 1u);
  EXPECT_THAT(alone[0].bytes, ElementsAre(Bytes{90}));
  ask(other, {{{}, 0, {8}, {2}}});
  ask(holder, {{{}, 0, {80}, {3}}});
  const auto both = admit();
  ASSERT_EQ(both.size(), 2u);
  EXPECT_THAT(both[0].bytes, ElementsAre(Bytes{3})) << "somebody else waits";
  EXPECT_THAT(both[1].bytes, ElementsAre(Bytes{7})) << "all that is left";
}

TEST_F(ArbiterOrder, ReconsidersAWaiterWhenPromisesToOthersGo) {
  ledger.reserve(holder, 0, {70});
  const TenantId waiter = tenant(burst());
  const auto large = ask(waiter, 40);
  const TenantId eve = tenant(promise(70));
  EXPECT_THAT(admitted(), ElementsAre());
  give_back(holder, 70);
  EXPECT_THAT(admitted(), ElementsAre()) << "70 are eve's";
  ledger.remove_tenant(eve);
  EXPECT_THAT(admitted(), ElementsAre(large));
}

}  // namespace
}  // namespace gpumem::core
