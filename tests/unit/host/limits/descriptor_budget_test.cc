#include "daemon/host/limits/connection_limits.h"

#include <gtest/gtest.h>

namespace gpumem::host {
namespace {

TEST(DescriptorBudget, LeavesMostToSessionsHoweverFewThereAre) {
  for (const std::size_t limit : {64UL, 400UL, 512UL, 1024UL, 65'536UL, 1'048'576UL}) {
    const DescriptorBudget budget(limit);
    // Two descriptors for a silent lane, two for a silent connection of gRPC, four for one that is relayed.
    EXPECT_LE(2 * budget.silent(), limit / 4) << limit;
    EXPECT_LE(4 * budget.api(), limit / 4) << limit;
    EXPECT_LT(budget.api_of_a_user(), budget.api());
    EXPECT_LT(budget.silent_of_a_user(), budget.silent());
  }
}

TEST(DescriptorBudget, KeepsTheLastOnesAndSomeOfTheseForAdministrators) {
  const DescriptorBudget budget(512);
  EXPECT_FALSE(budget.is_reserved(479, false));
  EXPECT_TRUE(budget.is_reserved(480, false));
  EXPECT_FALSE(budget.is_reserved(480, true));
  EXPECT_TRUE(budget.is_reserved(496, true));
  EXPECT_FALSE(budget.is_reserved_from_extents(487));
  EXPECT_TRUE(budget.is_reserved_from_extents(488)) << "administrators have the next eight";
}

}  // namespace
}  // namespace gpumem::host
