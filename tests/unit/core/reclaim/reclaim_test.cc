#include "daemon/core/reclaim/reclaim_plan.h"

#include <gmock/gmock.h>

#include "tests/unit/core/arbiter/arbiter_fixture.h"

// Who is asked to give back how much: docs/arbiter.md.

namespace gpumem::core {
namespace {

class Reclaim : public ArbiterWorld {
 protected:
  ReclaimPlan plan(std::uint64_t coming = 0) {
    static_cast<void>(arbiter.admit());
    ReclaimTargets debts;
    for (const TenantId debtor : ledger.in_debt(0)) {
      const Bytes returning = ledger.charges(debtor, 0)[Charge::kReturning];
      for (const auto& [tenant, own] : plan_debt(ledger, 0, debtor, facts(returning.count))) {
        debts[tenant].debt = std::max(debts[tenant].debt, own.debt);
        debts[tenant].declared = std::max(debts[tenant].declared, own.declared);
      }
    }
    return plan_reclaim(ledger, arbiter, 0, facts(coming), std::move(debts));
  }
  ReclaimFacts facts(std::uint64_t coming) {
    const auto most = [&](TenantId tenant, ReclaimCause) {
      const auto known = givable.find(tenant);
      return known == givable.end() ? ledger.charges(tenant, 0).held() : known->second;
    };
    return {{1}, [coming](TenantId) { return Bytes{coming}; }, most, declared};
  }
  // What each of the tenants is asked for.
  std::vector<std::uint64_t> asked(const ReclaimPlan& plan, const std::vector<TenantId>& tenants) {
    std::vector<std::uint64_t> amounts;
    for (const TenantId tenant : tenants) {
      const auto found = plan.targets.find(tenant);
      amounts.push_back(found == plan.targets.end() ? 0
                                                    : (found->second.pool() + found->second.declared).count);
    }
    return amounts;
  }
  void set_quota(TenantId tenant, Quota quota) {
    ledger.set_quotas(tenant, {quota, quota});
    arbiter.rebuild();
  }
  using Amounts = std::vector<std::uint64_t>;

  std::map<TenantId, Bytes> givable;
  std::map<TenantId, Bytes> declared;
};

// The device lends ann's guarantee of 40 to whoever asks.
class ReclaimForClaims : public Reclaim {
 protected:
  ReclaimForClaims() { ledger.set_lending(0, true); }
  TenantId ann = tenant(promise(40));
  TenantId bob = tenant(burst());
  TenantId cid = tenant(burst());
};

TEST_F(ReclaimForClaims, AsksNobodyIfNobodyWaits) {
  ledger.reserve(bob, 0, {100});
  EXPECT_TRUE(plan().targets.empty());
}

TEST_F(ReclaimForClaims, AsksTheHighestShareDownToTheNextAndThenBothAlike) {
  ledger.reserve(bob, 0, {60});
  ledger.reserve(cid, 0, {40});
  ask(ann, 10);
  EXPECT_EQ(asked(plan(), {bob, cid}), (Amounts{10, 0}));
  ask(ann, 20);
  EXPECT_EQ(plan().claims_lack, Bytes{10}) << "one tenant's claims come one by one";
  const TenantId eve = tenant(promise(20));
  ask(eve, 20);
  const ReclaimPlan both = plan();
  EXPECT_EQ(both.claims_lack, Bytes{30});
  EXPECT_EQ(asked(both, {bob, cid}), (Amounts{25, 5}));
}

TEST_F(ReclaimForClaims, LevelsByWeight) {
  const TenantId heavy = tenant(burst(300));
  ledger.reserve(heavy, 0, {60});
  ledger.reserve(cid, 0, {40});
  ask(ann, 40);
  EXPECT_EQ(asked(plan(), {heavy, cid}), (Amounts{15, 25})) << "45 and 15 stay, three to one";
}

TEST_F(ReclaimForClaims, AsksTheLowestPriorityForAllItHasFirst) {
  const TenantId low = tenant(burst(100, 4));
  ledger.reserve(low, 0, {20});
  ledger.reserve(bob, 0, {80});
  ask(ann, 30);
  EXPECT_EQ(asked(plan(), {low, bob}), (Amounts{20, 10}));
}

TEST_F(ReclaimForClaims, AsksNobodyForWhatItIsPromised) {
  const TenantId safe = tenant(promise(30));
  ledger.reserve(safe, 0, {35});
  ledger.reserve(bob, 0, {65});
  ask(ann, 40);
  EXPECT_EQ(asked(plan(), {safe, bob}), (Amounts{0, 40}));
  givable[bob] = {10};
  EXPECT_EQ(asked(plan(), {safe, bob}), (Amounts{5, 10})) << "no more than they have";
}

TEST_F(ReclaimForClaims, CountsWhatIsFreeAndWhatComesAnyway) {
  ledger.reserve(bob, 0, {90});
  ask(ann, 30);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{20});
  EXPECT_EQ(asked(plan(15), {bob}), Amounts{5});
  EXPECT_TRUE(plan(20).targets.empty());
}

TEST_F(ReclaimForClaims, AsksTheOthersForWhatOneHasNotToGive) {
  ledger.reserve(bob, 0, {60});
  ledger.reserve(cid, 0, {40});
  givable[bob] = {};
  ask(ann, 10);
  EXPECT_EQ(asked(plan(), {bob, cid}), (Amounts{0, 10}));
}

TEST_F(ReclaimForClaims, LevelsGroupsFirstAndThenTheirMembers) {
  const TenantId group = tenant(burst());
  const TenantId eve = tenant(burst(), group);
  const TenantId fay = tenant(burst(), group);
  ledger.reserve(eve, 0, {40});
  ledger.reserve(fay, 0, {20});
  ledger.reserve(bob, 0, {40});
  ask(ann, 20);
  EXPECT_EQ(asked(plan(), {eve, fay, bob}), (Amounts{20, 0, 0})) << "the group has 60";
  ask(tenant(promise(20)), 20);
  EXPECT_EQ(asked(plan(), {eve, fay, bob}), (Amounts{25, 5, 10})) << "30 each, and 15 within the group";
}

TEST_F(ReclaimForClaims, AsksForTheWholeClaimEvenIfNotAllOfItIsToBeHad) {
  ledger.reserve(bob, 0, {100});
  givable[bob] = {7};
  ask(ann, 40);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{7});
  EXPECT_EQ(plan().claims_lack, Bytes{40});
}

// Nobody is promised anything.
class ReclaimForFairness : public Reclaim {
 protected:
  TenantId ann = tenant(burst());
  TenantId bob = tenant(burst());
  TenantId cid = tenant(burst());
};

TEST_F(ReclaimForFairness, AsksWhoWouldStillHaveMore) {
  ledger.reserve(bob, 0, {100});
  ask(ann, 20);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{20});
}

// Guaranteed memory is lent to others, but not to a tenant with memory that nobody answers for.
TEST_F(ReclaimForFairness, AsksForWhatATenantLacksThatMayBorrowNothing) {
  ledger.set_lending(0, true);
  tenant(promise(40));
  ledger.reserve(bob, 0, {50});
  ledger.set_unanswered(cid, 0, {1});
  const RequestId id{ask(cid, 20)};
  EXPECT_EQ(asked(plan(), {bob}), Amounts{10});
  EXPECT_EQ(lack_of(ledger, arbiter, *arbiter.find(id), 0, ledger.free(0)), Bytes{10});
  ledger.release(bob, 0, {10}, Charge::kOffered);
  EXPECT_EQ(admitted(), Ids{id.value});
}

TEST_F(ReclaimForFairness, AsksForAllOfItOrNothing) {
  ledger.reserve(bob, 0, {60});
  ledger.reserve(cid, 0, {40});
  ask(ann, 33);
  EXPECT_EQ(asked(plan(), {bob, cid}), (Amounts{27, 6})) << "33 each stay, and more";
  ask(ann, 1);
  EXPECT_EQ(asked(plan(), {bob, cid}), (Amounts{27, 6})) << "for the first only";
  static_cast<void>(arbiter.remove(RequestId{1}));
  static_cast<void>(arbiter.remove(RequestId{2}));
  ask(ann, 40);
  EXPECT_TRUE(plan().targets.empty()) << "40 for ann would leave less to bob and cid";
}

TEST_F(ReclaimForFairness, CountsTheShareWithAllThatIsGranted) {
  ledger.reserve(bob, 0, {60});
  ask(ann, 55);
  EXPECT_TRUE(plan().targets.empty()) << "40 are free, but with 55 ann would have more than bob's 45";
  static_cast<void>(arbiter.remove(RequestId{1}));
  ask(ann, 48);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{8});
}

TEST_F(ReclaimForFairness, TakesFromLowerPrioritiesWhateverTheirShare) {
  const TenantId low = tenant(burst(10'000, 1));
  ledger.reserve(low, 0, {50});
  ledger.reserve(bob, 0, {50});
  ask(ann, 50);
  EXPECT_EQ(asked(plan(), {low, bob}), (Amounts{50, 0}));
}

TEST_F(ReclaimForFairness, TakesNothingFromHigherPriorities) {
  const TenantId high = tenant(burst(100, 9));
  ledger.reserve(high, 0, {100});
  ask(ann, 10);
  EXPECT_TRUE(plan().targets.empty());
}

TEST_F(ReclaimForFairness, LevelsAmongTheMembersOfAGroupBeforeOthersAreAsked) {
  const TenantId group = tenant(burst());
  const TenantId eve = tenant(burst(), group);
  const TenantId fay = tenant(burst(), group);
  ledger.reserve(eve, 0, {50});
  ledger.reserve(bob, 0, {50});
  ask(fay, 20);
  EXPECT_EQ(asked(plan(), {eve, bob}), (Amounts{20, 0}));
}

TEST_F(ReclaimForFairness, IsNeverOfThoseWithinTheirPromises) {
  const TenantId safe = tenant(promise(100));
  ledger.reserve(safe, 0, {100});
  ask(ann, 1);
  EXPECT_TRUE(plan().targets.empty());
}

TEST_F(ReclaimForFairness, LeavesItsShareToWhoGivesBackForAClaimToo) {
  ledger.set_lending(0, true);
  const TenantId rightful = tenant(promise(60));
  ledger.reserve(bob, 0, {100});
  ask(rightful, 60);
  ask(cid, 20);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{80}) << "20 each stay";
  givable[bob] = {70};
  EXPECT_EQ(asked(plan(), {bob}), Amounts{60}) << "of 70, 10 are not enough for cid";
  givable.clear();
  static_cast<void>(arbiter.remove(RequestId{2}));
  ask(cid, 35);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{60}) << "of 40, 35 more would leave bob less than cid";
}

TEST_F(ReclaimForFairness, LeavesItsShareToWhoPaysADebtToo) {
  ledger.reserve(bob, 0, {100});
  set_quota(bob, promise(0, 60));
  ask(ann, 50);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{50}) << "50 each stay";
  static_cast<void>(arbiter.remove(RequestId{1}));
  ask(ann, 70);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{40}) << "of 60, 30 more would leave bob less than ann";
}

TEST_F(ReclaimForFairness, AsksOnlyForWhatDebtsDoNotBring) {
  ledger.reserve(bob, 0, {80});
  ledger.reserve(cid, 0, {20});
  set_quota(cid, promise(0, 5));
  ask(ann, 30);
  EXPECT_EQ(asked(plan(), {bob, cid}), (Amounts{15, 15}));
}

// A group whose limit holds back gil, who would have the smallest share below it.
class ReclaimBelowAFullLimit : public Reclaim {
 protected:
  TenantId group = tenant(promise(0, 50));
  TenantId eve = tenant(burst(), group);
  TenantId fay = tenant(burst(), group);
  TenantId gil = tenant(burst(), group);
};

TEST_F(ReclaimBelowAFullLimit, AsksMembersForWhatTheLimitLacks) {
  ledger.reserve(eve, 0, {50});
  ask(gil, 10);
  EXPECT_EQ(asked(plan(), {eve}), Amounts{10});
  ledger.move(eve, 0, {4}, Charge::kOffered, Charge::kReturning);
  EXPECT_EQ(asked(plan(4), {eve}), Amounts{6});
}

TEST_F(ReclaimBelowAFullLimit, AsksNobodyForADebtThatAnotherIsAskedFor) {
  ledger.reserve(eve, 0, {30});
  ledger.charge_outside(fay, 0, {25});
  declared[fay] = {25};
  ask(gil, 10);
  EXPECT_EQ(asked(plan(), {eve, fay}), (Amounts{10, 5})) << "15 are over the limit with gil's 10";
}

TEST_F(ReclaimBelowAFullLimit, CountsNoReturnThatTheLimitDoesNotSee) {
  ledger.reserve(eve, 0, {30});
  set_quota(fay, promise(0, 20));
  ledger.charge_outside(fay, 0, {25});
  declared[fay] = {25};
  ask(gil, 10);
  EXPECT_EQ(asked(plan(), {eve, fay}), (Amounts{10, 5})) << "of fay's 25 the group has 20";
}

TEST_F(ReclaimBelowAFullLimit, CountsWhatAClaimOfAnotherBrings) {
  ledger.set_lending(0, true);
  const TenantId rightful = tenant(promise(20));
  ledger.reserve(eve, 0, {50});
  ledger.reserve(tenant(promise(50)), 0, {50});
  ask(rightful, 20);
  ask(gil, 10);
  EXPECT_EQ(asked(plan(), {eve}), Amounts{20});
}

TEST_F(ReclaimBelowAFullLimit, CountsNothingOfWhatIsNotAskedInTheEnd) {
  const TenantId ann = tenant(burst());
  ledger.reserve(eve, 0, {50});
  ledger.reserve(tenant(burst()), 0, {50});
  ask(ann, 45);
  EXPECT_TRUE(plan().targets.empty()) << "5 each are more than 45";
  ask(gil, 25);
  EXPECT_EQ(asked(plan(), {eve}), Amounts{25});
}

// Of the sessions of the tenant that waits, since nobody else can or should give it.
class ReclaimWithinATenant : public Reclaim {
 protected:
  // What the sessions of each of the tenants should give for its own request, and what others are asked for.
  struct Both {
    Amounts siblings;
    Amounts others;
    bool operator==(const Both&) const = default;
  };
  Both both(const std::vector<TenantId>& tenants, std::uint64_t coming = 0) {
    const ReclaimPlan plan = this->plan(coming);
    const SiblingTargets targets = plan_siblings(ledger, arbiter, 0, facts(coming).coming, plan);
    Both both{{}, asked(plan, tenants)};
    for (const TenantId tenant : tenants) {
      const auto found = targets.find(tenant);
      both.siblings.push_back(found == targets.end() ? 0 : found->second.bytes.count);
    }
    return both;
  }
  TenantId ann = tenant(promise(0, 70));
  TenantId bob = tenant(burst());
};

TEST_F(ReclaimWithinATenant, AsksForWhatItsOwnLimitLacks) {
  ledger.reserve(ann, 0, {65});
  ask(ann, 15);
  EXPECT_EQ(both({ann}), (Both{{10}, {0}}));
  ledger.move(ann, 0, {4}, Charge::kOffered, Charge::kReturning);
  EXPECT_EQ(both({ann}, 4), (Both{{6}, {0}}));
}

TEST_F(ReclaimWithinATenant, AsksForWhatOthersPromisesLeaveNoRoomFor) {
  tenant(promise(50));
  ledger.reserve(ann, 0, {45});
  ask(ann, 15);
  EXPECT_EQ(both({ann}), (Both{{10}, {0}}));
}

TEST_F(ReclaimWithinATenant, AsksWhenItIsItsTurnAndNobodyHasMore) {
  ledger.reserve(ann, 0, {60});
  ledger.reserve(bob, 0, {40});
  ask(ann, 10);
  EXPECT_EQ(both({ann, bob}), (Both{{10, 0}, {0, 0}}));
  ledger.move(bob, 0, {3}, Charge::kOffered, Charge::kReturning);
  EXPECT_EQ(both({ann, bob}, 3), (Both{{7, 0}, {0, 0}}));
}

TEST_F(ReclaimWithinATenant, AsksOthersFirstWhoWouldStillHaveMore) {
  ledger.reserve(ann, 0, {30});
  ledger.reserve(bob, 0, {70});
  ask(ann, 10);
  EXPECT_EQ(both({ann, bob}), (Both{{0, 0}, {0, 10}}));
  givable[bob] = {4};
  EXPECT_EQ(both({ann, bob}), (Both{{10, 0}, {0, 0}})) << "of one side it is all or nothing";
}

TEST_F(ReclaimWithinATenant, CountsWhatADebtAndAClaimOfOthersBring) {
  ledger.reserve(ann, 0, {70});
  set_quota(ann, promise(0, 60));
  ask(ann, 5);
  EXPECT_EQ(both({ann}), (Both{{5}, {10}}));
  ledger.set_lending(0, true);
  const TenantId rightful = tenant(promise(50));
  ask(rightful, 50);
  EXPECT_EQ(both({ann}), (Both{{0}, {20}})) << "30 are free";
}

TEST_F(ReclaimWithinATenant, AsksForTheFirstThatWaitsBesideASmallOneThatMayPass) {
  ledger.reserve(ann, 0, {60});
  ask(ann, 30);
  ledger.reserve(bob, 0, {38});
  ask(ann, 5);
  EXPECT_EQ(both({ann}), (Both{{20}, {0}})) << "the first 3 of them let it pass";
}

TEST_F(ReclaimWithinATenant, IsForNobodyWhoseTurnIsNotThere) {
  const TenantId cid = tenant(burst());
  ledger.reserve(ann, 0, {50});
  ledger.reserve(bob, 0, {50});
  ask(cid, 1);
  ask(ann, 10);
  EXPECT_EQ(both({ann, bob}), (Both{{0, 0}, {1, 0}})) << "cid comes first, and ann has no less than bob";
}

// The group has no room, and none of its members more than eve.
TEST_F(ReclaimWithinATenant, AsksBelowTheLimitOfAGroup) {
  const TenantId group = tenant(promise(0, 50));
  const TenantId eve = tenant(burst(), group);
  const TenantId fay = tenant(burst(), group);
  ledger.reserve(eve, 0, {30});
  ledger.reserve(fay, 0, {20});
  ask(eve, 5);
  EXPECT_EQ(both({eve, fay}), (Both{{5, 0}, {0, 0}}));
}

TEST_F(ReclaimWithinATenant, LooksAtTheSixtyFourThatHaveWaitedLongest) {
  std::vector<TenantId> tenants;
  for (int i = 0; i < 65; ++i) {
    tenants.push_back(tenant(promise(0, 1)));
    ledger.reserve(tenants.back(), 0, {1});
    ask(tenants.back(), 1);
  }
  EXPECT_EQ(both(tenants).siblings, [] {
    Amounts amounts(64, 1);
    amounts.push_back(0);
    return amounts;
  }());
}

class ReclaimForDebts : public Reclaim {
 protected:
  TenantId ann = tenant(burst());
  TenantId bob = tenant(burst());
};

TEST_F(ReclaimForDebts, AsksTheDebtorForWhatIsOverItsLimit) {
  ledger.reserve(bob, 0, {60});
  ledger.reserve(ann, 0, {40});
  set_quota(bob, promise(0, 45));
  EXPECT_EQ(asked(plan(), {ann, bob}), (Amounts{0, 15}));
  ledger.move(bob, 0, {10}, Charge::kOffered, Charge::kReturning);
  EXPECT_EQ(asked(plan(10), {bob}), Amounts{5});
}

TEST_F(ReclaimForDebts, AsksForNoMoreThanTheSessionsHold) {
  ledger.reserve(bob, 0, {10});
  ledger.charge_outside(bob, 0, {200});
  EXPECT_EQ(asked(plan(), {bob}), Amounts{10});
}

TEST_F(ReclaimForDebts, AsksTheMembersOfAGroupInTheirOrder) {
  const TenantId group = tenant(promise(0, 100));
  const TenantId eve = tenant(burst(), group);
  const TenantId fay = tenant(burst(), group);
  ledger.reserve(eve, 0, {50});
  ledger.reserve(fay, 0, {30});
  set_quota(group, promise(0, 50));
  EXPECT_EQ(asked(plan(), {eve, fay, ann}), (Amounts{25, 5, 0}));
}

TEST_F(ReclaimForDebts, AsksNobodyForWhatItDeclaresWithinWhatItIsPromised) {
  const TenantId group = tenant(promise(0, 100));
  const TenantId eve = tenant(promise(10), group);
  const TenantId fay = tenant(burst(), group);
  ledger.charge_outside(eve, 0, {12});
  declared[eve] = {12};
  ledger.reserve(fay, 0, {60});
  set_quota(group, promise(0, 60));
  EXPECT_EQ(asked(plan(), {eve, fay}), (Amounts{2, 10}));
}

TEST_F(ReclaimForDebts, CountsOneReturnForEveryCauseItServes) {
  ledger.reserve(bob, 0, {100});
  set_quota(bob, promise(0, 80));
  ask(ann, 30);
  EXPECT_EQ(asked(plan(), {bob}), Amounts{30}) << "of which 20 pay the debt";
}

}  // namespace
}  // namespace gpumem::core
