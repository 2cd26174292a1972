#include "daemon/core/ledger.h"

#include <gtest/gtest.h>

namespace gpumem::core {
namespace {

constexpr Bytes kMost{~0ULL};
using Verdict = Ledger::Verdict;

class LedgerTest : public testing::Test {
 protected:
  Ledger ledger{{{100}, {1000}}};
  TenantId ann = ledger.add_tenant({{{30}, {80}}, {{0}, {1000}}});
  TenantId bob = ledger.add_tenant({{{20}, {100}}, {{0}, {1000}}});
  TenantId cid = ledger.add_tenant({{{0}, {100}}, {{0}, {0}}});
};

TEST_F(LedgerTest, ReservesAsOfferedOnOneDeviceOnly) {
  EXPECT_EQ(ledger.reserve(ann, 0, {10}), Verdict::kFits);
  EXPECT_EQ(ledger.charges(ann, 0)[Charge::kOffered], Bytes{10});
  EXPECT_EQ(ledger.charges(0).total(), Bytes{10});
  EXPECT_EQ(ledger.charges(1).total(), Bytes{0});
  EXPECT_EQ(ledger.free(0), Bytes{90});
}

TEST_F(LedgerTest, KeepsUnmetGuaranteesFromOthers) {
  EXPECT_EQ(ledger.kept_for_others(cid, 0), Bytes{50});
  EXPECT_EQ(ledger.available(cid, 0), Bytes{50});
  EXPECT_EQ(ledger.reserve(cid, 0, {51}), Verdict::kOverLimit) << "more than the guarantees ever leave";
  EXPECT_EQ(ledger.reserve(cid, 0, {50}), Verdict::kFits);
  EXPECT_EQ(ledger.reserve(ann, 0, {31}), Verdict::kNoMemory);
  EXPECT_EQ(ledger.reserve(ann, 0, {30}), Verdict::kFits);
  EXPECT_EQ(ledger.reserve(bob, 0, {20}), Verdict::kFits);
  EXPECT_EQ(ledger.free(0), Bytes{0});
}

TEST_F(LedgerTest, ChargesEveryStateAgainstTheLimit) {
  for (const Charge state : {Charge::kOffered, Charge::kActive, Charge::kReturning, Charge::kQuarantined}) {
    ASSERT_EQ(ledger.reserve(ann, 0, {20}), Verdict::kFits);
    if (state != Charge::kOffered) ledger.move(ann, 0, {20}, Charge::kOffered, state);
  }
  EXPECT_EQ(ledger.verdict(ann, 0, {1}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.charges(ann, 0).held(), Bytes{40});
  EXPECT_EQ(ledger.charges(ann, 0).total(), Bytes{80});
  ledger.release(ann, 0, {20}, Charge::kQuarantined);
  EXPECT_EQ(ledger.verdict(ann, 0, {20}), Verdict::kFits);
}

TEST_F(LedgerTest, LeavesEverythingAsItWasWhenItRefuses) {
  EXPECT_EQ(ledger.reserve(ann, 0, {81}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.reserve(ann, 0, kMost), Verdict::kOverLimit);
  EXPECT_EQ(ledger.reserve(bob, 1, {1001}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.charges(0).total(), Bytes{0});
  EXPECT_EQ(ledger.free(1), Bytes{1000});
}

TEST_F(LedgerTest, GrantsNothingToATenantWithoutALimit) {
  EXPECT_EQ(ledger.reserve(cid, 1, {1}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.available(cid, 1), Bytes{0});
}

TEST_F(LedgerTest, GrantsNoMissingMemory) {
  ledger.set_missing(0, {60});
  EXPECT_EQ(ledger.free(0), Bytes{40});
  EXPECT_EQ(ledger.reserve(cid, 0, {1}), Verdict::kNoMemory) << "less is left than the guarantees need";
  EXPECT_EQ(ledger.reserve(ann, 0, {20}), Verdict::kFits);
  ledger.set_missing(0, {100});
  EXPECT_EQ(ledger.free(0), Bytes{0});
}

TEST_F(LedgerTest, LetsTheChargeStandWhereALimitIsLoweredUnderIt) {
  ASSERT_EQ(ledger.reserve(ann, 0, {60}), Verdict::kFits);
  ledger.set_quotas(ann, {{{10}, {40}}, {}});
  EXPECT_EQ(ledger.charges(ann, 0).total(), Bytes{60});
  EXPECT_EQ(ledger.verdict(ann, 0, {1}), Verdict::kOverLimit);
  EXPECT_EQ(ledger.available(ann, 0), Bytes{0});
  EXPECT_FALSE(ledger.within_guarantee(ann, 0, {1}));
  EXPECT_EQ(ledger.guaranteed(0), Bytes{30});
  ledger.release(ann, 0, {60}, Charge::kOffered);
  EXPECT_EQ(ledger.available(ann, 0), Bytes{40});
}

TEST_F(LedgerTest, KnowsWhatIsWithinAGuarantee) {
  EXPECT_TRUE(ledger.within_guarantee(ann, 0, {30}));
  EXPECT_FALSE(ledger.within_guarantee(ann, 0, {31}));
  EXPECT_FALSE(ledger.within_guarantee(cid, 0, {1}));
  ASSERT_EQ(ledger.reserve(ann, 0, {10}), Verdict::kFits);
  EXPECT_FALSE(ledger.within_guarantee(ann, 0, {21}));
}

TEST_F(LedgerTest, CountsTheCeilingFromTheLimitAndTheOthersGuarantees) {
  EXPECT_EQ(ledger.ceiling(ann, 0), Bytes{80});
  EXPECT_EQ(ledger.ceiling(bob, 0), Bytes{70});
  EXPECT_EQ(ledger.ceiling(cid, 0), Bytes{50});
  EXPECT_EQ(ledger.ceiling(cid, 1), Bytes{0});
}

TEST_F(LedgerTest, ForgetsTheGuaranteeOfATenantThatGoes) {
  ledger.remove_tenant(ann);
  EXPECT_EQ(ledger.guaranteed(0), Bytes{20});
  EXPECT_EQ(ledger.available(cid, 0), Bytes{80});
}

using LedgerDeathTest = LedgerTest;

TEST_F(LedgerDeathTest, AbortsOnReleasesOfMoreThanIsCharged) {
  ASSERT_EQ(ledger.reserve(ann, 0, {10}), Verdict::kFits);
  EXPECT_DEATH(ledger.release(ann, 0, {11}, Charge::kOffered), "");
  EXPECT_DEATH(ledger.release(ann, 0, {10}, Charge::kActive), "");
  EXPECT_DEATH(ledger.release(bob, 0, {10}, Charge::kOffered), "");
  EXPECT_DEATH(ledger.move(ann, 1, {10}, Charge::kOffered, Charge::kActive), "");
}

TEST_F(LedgerDeathTest, AbortsOnUnknownTenantsAndDevices) {
  EXPECT_DEATH(static_cast<void>(ledger.verdict(TenantId{99}, 0, {1})), "tenant and device known");
  EXPECT_DEATH(static_cast<void>(ledger.reserve(ann, 2, {1})), "tenant and device known");
  EXPECT_DEATH(static_cast<void>(ledger.is_idle(TenantId{})), "tenant known");
}

TEST_F(LedgerDeathTest, AbortsWhenAChargedTenantIsToGo) {
  ASSERT_EQ(ledger.reserve(ann, 0, {10}), Verdict::kFits);
  EXPECT_DEATH(ledger.remove_tenant(ann), "charges cannot go");
}

TEST_F(LedgerDeathTest, AbortsOnFiguresThatCannotBe) {
  EXPECT_DEATH(ledger.set_missing(0, {101}), "bytes of the pool");
  EXPECT_DEATH(ledger.set_quotas(ann, {Quota{}}), "one quota a device");
}

}  // namespace
}  // namespace gpumem::core
