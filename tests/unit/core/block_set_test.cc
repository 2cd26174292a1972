#include "daemon/core/block_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace gpumem::core {
namespace {

TEST(BlockSet, IsAsAStandardSetWhateverComesAndGoes) {
  std::mt19937 random(11);
  BlockSet<int> set;
  std::set<int> plain;
  for (int step = 0; step < 20'000; ++step) {
    const int value = static_cast<int>(random() % 1000);
    const bool grows = step / 4000 % 2 == 0;
    if (random() % 100 < (grows ? 70u : 30u)) {
      ASSERT_EQ(set.insert(value), plain.insert(value).second);
    } else {
      ASSERT_EQ(set.erase(value), plain.erase(value) == 1);
    }
    ASSERT_EQ(set.empty(), plain.empty());
    const int bound = static_cast<int>(random() % 1010);
    const auto found = set.lower_bound(bound);
    const auto expected = plain.lower_bound(bound);
    ASSERT_EQ(found == set.end(), expected == plain.end());
    if (expected != plain.end()) {
      ASSERT_EQ(*found, *expected);
    }
    if (step % 500 == 0) {
      ASSERT_TRUE(std::equal(set.begin(), set.end(), plain.begin(), plain.end()));
    }
  }
}

TEST(BlockSet, IsEmptyAgainOnceEverythingHasGone) {
  BlockSet<int> set;
  for (int value = 0; value < 1000; ++value) EXPECT_TRUE(set.insert(value));
  for (int value = 0; value < 1000; ++value) EXPECT_TRUE(set.erase(value));
  EXPECT_TRUE(set.empty());
  EXPECT_TRUE(set.begin() == set.end());
  EXPECT_FALSE(set.erase(1));
}

}  // namespace
}  // namespace gpumem::core
