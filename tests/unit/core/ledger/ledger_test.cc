#include "daemon/core/ledger/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpumem::core {
namespace {

constexpr Bytes kMost{~0ULL};
using Verdict = Ledger::Verdict;

class LedgerTest : public testing::Test {
 protected:
  void set_quotas(TenantId tenant, Quotas quotas) { ledger.set_quotas(tenant, std::move(quotas)); }
  Ledger ledger{{{100}, {1000}}};
  TenantId ann = ledger.add_tenant(Quotas{{{30}, {80}}, {{0}, {1000}}});
  TenantId bob = ledger.add_tenant(Quotas{{{20}, {100}}, {{0}, {1000}}});
  TenantId cid = ledger.add_tenant(Quotas{{{0}, {100}}, {{0}, {0}}});
};

TEST_F(LedgerTest, ReservesAsOfferedOnOneDeviceOnly) {
  ledger.reserve(ann, 0, {10});
  EXPECT_EQ(ledger.charges(ann, 0)[Charge::kOffered], Bytes{10});
  EXPECT_EQ(ledger.charges(0).total(), Bytes{10});
  EXPECT_EQ(ledger.charges(1).total(), Bytes{0});
  EXPECT_EQ(ledger.free(0), Bytes{90});
}

TEST_F(LedgerTest, KeepsUnmetGuaranteesFromOthers) {
  EXPECT_EQ(ledger.kept_for_others(cid, 0), Bytes{50});
  EXPECT_EQ(ledger.available(cid, 0), Bytes{50});
  EXPECT_EQ(ledger.verdict(cid, 0, {51}), Verdict::kNoMemory) << "more than the guarantees ever leave";
  ledger.reserve(cid, 0, {50});
  EXPECT_EQ(ledger.verdict(ann, 0, {31}), Verdict::kNoMemory);
  ledger.reserve(ann, 0, {30});
  ledger.reserve(bob, 0, {20});
  EXPECT_EQ(ledger.free(0), Bytes{0});
}

TEST_F(LedgerTest, ChargesEveryStateAgainstTheLimit) {
  for (const Charge state : {Charge::kOffered, Charge::kActive, Charge::kReturning, Charge::kQuarantined}) {
    ledger.reserve(ann, 0, {20});
    if (state != Charge::kOffered) ledger.move(ann, 0, {20}, Charge::kOffered, state);
  }
  EXPECT_EQ(ledger.verdict(ann, 0, {1}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.charges(ann, 0).held(), Bytes{40});
  EXPECT_EQ(ledger.charges(ann, 0).total(), Bytes{80});
  ledger.release(ann, 0, {20}, Charge::kQuarantined);
  EXPECT_EQ(ledger.verdict(ann, 0, {20}), Verdict::kFits);
}

TEST_F(LedgerTest, RefusesWhatPassesALimitHoweverLarge) {
  EXPECT_EQ(ledger.verdict(ann, 0, {81}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.verdict(ann, 0, kMost), Verdict::kOverLimit);
  EXPECT_EQ(ledger.verdict(bob, 1, {1001}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.verdict(bob, 0, {100}), Verdict::kNoMemory);
}

TEST_F(LedgerTest, GrantsNothingToATenantWithoutALimit) {
  EXPECT_EQ(ledger.verdict(cid, 1, {1}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.available(cid, 1), Bytes{0});
}

TEST_F(LedgerTest, GrantsNoMissingMemory) {
  ledger.set_missing(0, {60});
  EXPECT_EQ(ledger.free(0), Bytes{40});
  EXPECT_EQ(ledger.verdict(cid, 0, {1}), Verdict::kNoMemory) << "less is left than the guarantees need";
  ledger.reserve(ann, 0, {20});
  ledger.set_missing(0, {100});
  EXPECT_EQ(ledger.free(0), Bytes{0});
}

TEST_F(LedgerTest, LetsTheChargeStandWhereALimitIsLoweredUnderIt) {
  ledger.reserve(ann, 0, {60});
  set_quotas(ann, {{{10}, {40}}, {}});
  EXPECT_EQ(ledger.charges(ann, 0).total(), Bytes{60});
  EXPECT_EQ(ledger.verdict(ann, 0, {1}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.available(ann, 0), Bytes{0});
  EXPECT_EQ(ledger.claimable(ann, 0), Bytes{0});
  EXPECT_EQ(ledger.debt(ann, 0), Bytes{20});
  EXPECT_EQ(ledger.in_debt(0), std::set{ann});
  EXPECT_EQ(ledger.promised(0), Bytes{30});
  ledger.release(ann, 0, {60}, Charge::kOffered);
  EXPECT_EQ(ledger.available(ann, 0), Bytes{40});
  EXPECT_TRUE(ledger.in_debt(0).empty());
}

TEST_F(LedgerTest, KnowsWhatIsWithinAGuarantee) {
  EXPECT_EQ(ledger.claimable(ann, 0), Bytes{30});
  EXPECT_EQ(ledger.claimable(cid, 0), Bytes{0});
  ledger.reserve(ann, 0, {10});
  EXPECT_EQ(ledger.claimable(ann, 0), Bytes{20});
}

TEST_F(LedgerTest, CountsTheCeilingFromTheLimitAndTheOthersGuarantees) {
  EXPECT_EQ(ledger.ceiling(ann, 0), Bytes{80});
  EXPECT_EQ(ledger.ceiling(bob, 0), Bytes{70});
  EXPECT_EQ(ledger.ceiling(cid, 0), Bytes{50});
  EXPECT_EQ(ledger.ceiling(cid, 1), Bytes{0});
}

TEST_F(LedgerTest, ForgetsTheGuaranteeOfATenantThatGoes) {
  ledger.remove_tenant(ann);
  EXPECT_EQ(ledger.promised(0), Bytes{20});
  EXPECT_EQ(ledger.available(cid, 0), Bytes{80});
}

TEST_F(LedgerTest, CountsWhatIsChargedOutsideThePoolAgainstLimitAndGuaranteeButNotAgainstThePool) {
  ledger.charge_outside(ann, 0, {50});
  EXPECT_EQ(ledger.free(0), Bytes{100});
  EXPECT_EQ(ledger.used(ann, 0), Bytes{50});
  EXPECT_EQ(ledger.kept_for_others(cid, 0), Bytes{20}) << "ann's guarantee is met";
  EXPECT_EQ(ledger.verdict(ann, 0, {31}), Verdict::kOverLimit);
  EXPECT_FALSE(ledger.is_idle(ann));
  ledger.charge_outside(ann, 0, {50});
  EXPECT_EQ(ledger.outside(0), Bytes{100}) << "also what is beyond the limit";
  ledger.release_outside(ann, 0, {100});
  EXPECT_TRUE(ledger.is_idle(ann));
}

TEST_F(LedgerTest, LendsIdleGuaranteesButNotWhatTheirClaimsWaitFor) {
  ledger.set_lending(0, true);
  EXPECT_EQ(ledger.available(cid, 0), Bytes{100});
  EXPECT_EQ(ledger.available(cid, 0, GrantTerms{Bytes{30}}), Bytes{70});
  EXPECT_EQ(ledger.available(ann, 0, GrantTerms{Bytes{90}}), Bytes{30}) << "its own guarantee";
  ledger.reserve(cid, 0, {100});
  EXPECT_EQ(ledger.burst(cid, 0), Bytes{100});
  EXPECT_EQ(ledger.verdict(ann, 0, {1}), Verdict::kNoMemory);
}

// 40 are promised to a group with a limit of 60; 10 of them to eve, none to fay.
class LedgerGroupTest : public LedgerTest {
 protected:
  TenantId group = ledger.add_tenant(Quotas{{{40}, {60}}, {}});
  TenantId eve = ledger.add_tenant(Quotas{{{10}, {60}}, {}}, group);
  TenantId fay = ledger.add_tenant(Quotas{{{0}, {60}}, {}}, group);
};

TEST_F(LedgerGroupTest, KeepsTheGroupsGuaranteeForAnyOfItsMembers) {
  EXPECT_EQ(ledger.promised(0), Bytes{90});
  EXPECT_EQ(ledger.kept(0), Bytes{90});
  EXPECT_EQ(ledger.claimable(fay, 0), Bytes{30}) << "10 are eve's";
  EXPECT_EQ(ledger.claimable(eve, 0), Bytes{40});
  ledger.reserve(fay, 0, {30});
  EXPECT_EQ(ledger.kept(0), Bytes{60});
  EXPECT_EQ(ledger.claimable(fay, 0), Bytes{0});
  EXPECT_EQ(ledger.claimable(eve, 0), Bytes{10});
  EXPECT_EQ(ledger.burst(group, 0), Bytes{0});
}

TEST_F(LedgerGroupTest, ChargesTheMembersToTheGroupAndRefusesWhatPassesItsLimit) {
  ledger.reserve(fay, 0, {40});
  EXPECT_EQ(ledger.used(group, 0), Bytes{40});
  EXPECT_EQ(ledger.verdict(fay, 0, {11}), Verdict::kOverLimit) << "10 are kept for eve";
  EXPECT_EQ(ledger.limiting(fay, 0, {11}), group);
  EXPECT_EQ(ledger.verdict(eve, 0, {20}), Verdict::kNoMemory);
  EXPECT_EQ(ledger.verdict(eve, 0, {21}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.available(fay, 0), Bytes{0}) << "nothing is free beyond what is kept";
}

TEST_F(LedgerGroupTest, TakesItsChargesAlongWhenATenantMoves) {
  ledger.reserve(eve, 0, {10});
  ledger.set_parent(eve, {});
  EXPECT_EQ(ledger.used(group, 0), Bytes{0});
  EXPECT_EQ(ledger.promised(0), Bytes{100});
  EXPECT_EQ(ledger.kept(0), Bytes{90});
  ledger.set_parent(eve, group);
  EXPECT_EQ(ledger.used(group, 0), Bytes{10});
  EXPECT_EQ(ledger.promised(0), Bytes{90});
  EXPECT_EQ(ledger.kept(0), Bytes{80});
}

TEST_F(LedgerGroupTest, ReachesWhatIsNotPromisedToOthersOnEveryLevel) {
  EXPECT_EQ(ledger.reach(fay, 0), Bytes{40}) << "100 less 30, 20 and 10";
  EXPECT_EQ(ledger.reach(eve, 0), Bytes{50});
  EXPECT_EQ(ledger.reach(cid, 0), Bytes{10});
}

using LedgerDeathTest = LedgerTest;

TEST_F(LedgerDeathTest, AbortsOnReservationsThatDoNotFit) {
  EXPECT_DEATH(ledger.reserve(ann, 0, {81}), "only what fits");
  EXPECT_DEATH(ledger.reserve(cid, 0, {51}), "only what fits");
}

TEST_F(LedgerDeathTest, AbortsOnReleasesOfMoreThanIsCharged) {
  ledger.reserve(ann, 0, {10});
  EXPECT_DEATH(ledger.release(ann, 0, {11}, Charge::kOffered), "");
  EXPECT_DEATH(ledger.release(ann, 0, {10}, Charge::kActive), "");
  EXPECT_DEATH(ledger.release(bob, 0, {10}, Charge::kOffered), "");
  EXPECT_DEATH(ledger.move(ann, 1, {10}, Charge::kOffered, Charge::kActive), "");
}

TEST_F(LedgerDeathTest, AbortsOnUnknownTenantsAndDevices) {
  EXPECT_DEATH(static_cast<void>(ledger.verdict(TenantId{99}, 0, {1})), "tenant known");
  EXPECT_DEATH(static_cast<void>(ledger.used(ann, 2)), "device known");
  EXPECT_DEATH(static_cast<void>(ledger.is_idle(TenantId{})), "tenant known");
}

TEST_F(LedgerDeathTest, AbortsWhenAChargedTenantIsToGo) {
  ledger.reserve(ann, 0, {10});
  EXPECT_DEATH(ledger.remove_tenant(ann), "charges cannot go");
}

TEST_F(LedgerDeathTest, AbortsOnFiguresThatCannotBe) {
  EXPECT_DEATH(set_quotas(ann, {Quota{}}), "one quota a device");
}

TEST_F(LedgerTest, SaysOnEveryDeviceWhoseQuotasHaveChanged) {
  Ledger::Changes changed;
  ledger.take_changed(changed);
  set_quotas(ann, {{{30}, {80}}, {{0}, {500}}});
  ledger.take_changed(changed);
  for (const DeviceIndex device : {0u, 1u})
    EXPECT_NE(std::ranges::find(changed, std::pair(ann, DeviceIndex{device})), changed.end()) << device;
}

TEST_F(LedgerTest, CountsWhatCanBeClaimedUpToATenantOnlyIfAskedTo) {
  const TenantId lab = ledger.add_tenant(Quotas{{{40}, {100}}, {{0}, {0}}});
  const TenantId dan = ledger.add_tenant(Quotas{{{10}, {100}}, {{0}, {0}}}, lab);
  EXPECT_EQ(ledger.claimable(dan, 0, dan), Bytes{10});
  EXPECT_EQ(ledger.claimable(dan, 0, lab), Bytes{40});
  EXPECT_EQ(ledger.claimable(dan, 0), Bytes{40});
}

TEST_F(LedgerTest, LendsIdleGuaranteesOnlyToThoseWhoMayBorrow) {
  ledger.set_lending(0, true);
  EXPECT_EQ(ledger.available(cid, 0, {.may_borrow = true}), Bytes{100});
  EXPECT_EQ(ledger.available(cid, 0, {.may_borrow = false}), Bytes{50});
  EXPECT_EQ(ledger.verdict(cid, 0, {51}, {.may_borrow = false}), Verdict::kNoMemory);
  EXPECT_EQ(ledger.available(ann, 0, {.may_borrow = false}), Bytes{80}) << "its own guarantee besides";
  EXPECT_EQ(ledger.room(cid, 0), Bytes{100});
  ledger.set_unanswered(cid, 0, {1});
  EXPECT_EQ(ledger.room(cid, 0), Bytes{50}) << "nobody answers for memory of an ended process";
}

}  // namespace
}  // namespace gpumem::core
