#include "daemon/core/memory/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpumem::core {
namespace {

TEST(Demand, CountsWhatIsAskedForBySize) {
  Demand demand(gibibytes(1));
  EXPECT_EQ(demand.of(mebibytes(64)), 0u);
  EXPECT_TRUE(demand.sizes().empty());
  demand.note(mebibytes(64), 1);
  demand.note(mebibytes(2), 5);
  demand.note(mebibytes(64), 2);
  EXPECT_EQ(demand.of(mebibytes(64)), 3u);
  EXPECT_EQ(demand.of(mebibytes(2)), 5u);
  EXPECT_EQ(demand.of(mebibytes(4)), 0u);
  EXPECT_EQ(demand.sizes().size(), 2u);
}

TEST(Demand, KeepsTheLargerOfThisWindowAndTheOneBefore) {
  Demand demand(mebibytes(100));
  demand.note(mebibytes(20), 5);
  demand.note(mebibytes(20), 1);
  EXPECT_EQ(demand.of(mebibytes(20)), 5u) << "a window has just begun";
  demand.note(mebibytes(10), 8);
  EXPECT_EQ(demand.of(mebibytes(20)), 5u);
  EXPECT_EQ(demand.of(mebibytes(10)), 8u);
  demand.note(mebibytes(10), 10);
  EXPECT_EQ(demand.of(mebibytes(20)), 1u) << "of the window before the last, nothing is known any more";
  demand.note(mebibytes(10), 1);
  EXPECT_EQ(demand.of(mebibytes(20)), 0u);
  EXPECT_EQ(demand.of(mebibytes(10)), 10u);
  EXPECT_EQ(demand.sizes(), std::vector{mebibytes(10)});
}

TEST(Demand, RemembersOneRequestThatIsMoreThanAWindow) {
  Demand demand({});
  demand.note(gibibytes(40), 3);
  EXPECT_EQ(demand.of(gibibytes(40)), 3u);
  demand.note(mebibytes(2), 1);
  demand.note(mebibytes(2), 1);
  EXPECT_EQ(demand.of(gibibytes(40)), 0u);
  EXPECT_EQ(demand.of(mebibytes(2)), 1u);
}

}  // namespace
}  // namespace gpumem::core
