#include "client/shim/memory/session/charges.h"

#include <gtest/gtest.h>

namespace gpumem::shim::test {
namespace {

TEST(BudgetTest, IsNeverPassed) {
  Budget budget(mebibytes(10));
  ASSERT_TRUE(budget.reserve(mebibytes(8)));
  EXPECT_FALSE(budget.reserve(mebibytes(3)));
  EXPECT_FALSE(budget.reserve({~std::uint64_t{0}}));
  EXPECT_EQ(budget.reserve_up_to(mebibytes(12)), mebibytes(2));
  EXPECT_EQ(budget.used(), mebibytes(10));
  budget.release(mebibytes(9));
  EXPECT_EQ(budget.used(), mebibytes(1));
}

TEST(RoomTest, ForTheDriversMemoryIsTheTenantsNotTheJobs) {
  DeviceFigures figures{};
  figures.limit = figures.charged = mebibytes(4).count;
  figures.tenant_limit = mebibytes(10).count;
  figures.tenant_charged = mebibytes(8).count;
  EXPECT_TRUE(check_room(figures, mebibytes(2)));
  EXPECT_FALSE(check_room(figures, mebibytes(3)));
  figures.charged = mebibytes(5).count;
  EXPECT_FALSE(check_room(figures, {})) << "above the job's limit, as a context can take it";
  figures.charged = mebibytes(4).count;
  figures.tenant_charged = mebibytes(11).count;
  EXPECT_FALSE(check_room(figures, {})) << "above its limit it has room for nothing";
}

}  // namespace
}  // namespace gpumem::shim::test
