#include "daemon/core/memory/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gpumem::core {
namespace {

const SizeClasses kClasses(mebibytes(2));

TEST(SizeClasses, GrowFourfoldFromTheGranularity) {
  EXPECT_EQ(kClasses.granularity(), mebibytes(2));
  EXPECT_EQ(kClasses.size(1), mebibytes(8));
  EXPECT_EQ(kClasses.size(SizeClasses::kCount - 1), gibibytes(2));
  EXPECT_EQ(kClasses.largest(), gibibytes(2));
  for (std::size_t i = 0; i < SizeClasses::kCount; ++i) EXPECT_TRUE(kClasses.has(kClasses.size(i)));
  EXPECT_FALSE(kClasses.has(mebibytes(4)));
}

TEST(SizeClasses, KnowTheLargestWithinAnAmount) {
  EXPECT_EQ(kClasses.largest_within(mebibytes(8)), mebibytes(8));
  EXPECT_EQ(kClasses.largest_within(mebibytes(31)), mebibytes(8));
  EXPECT_EQ(kClasses.largest_within({~0ULL}), gibibytes(2));
  EXPECT_EQ(kClasses.largest_within({1}), mebibytes(2)) << "there is none smaller";
}

TEST(SizeClasses, SplitIntoTheFewestSizesLargestFirst) {
  using Sizes = std::vector<Bytes>;
  EXPECT_EQ(kClasses.split({}), Sizes{});
  EXPECT_EQ(kClasses.split(mebibytes(2)), Sizes{mebibytes(2)});
  EXPECT_EQ(kClasses.split(mebibytes(46)),
            (Sizes{mebibytes(32), mebibytes(8), mebibytes(2), mebibytes(2), mebibytes(2)}));
  EXPECT_EQ(kClasses.split(gibibytes(6)).size(), 3u);
}

TEST(SizeClasses, SplitsAddUpToWhatIsAsked) {
  for (std::uint64_t pieces = 0; pieces < 5000; pieces += 7) {
    Bytes sum;
    for (const Bytes part : kClasses.split(mebibytes(2 * pieces))) sum += part;
    EXPECT_EQ(sum, mebibytes(2 * pieces));
  }
}

TEST(SizeClassesDeathTest, AbortOnSizesThatAreNone) {
  EXPECT_DEATH(static_cast<void>(kClasses.split(Bytes{1})), "multiple of the granularity");
}

}  // namespace
}  // namespace gpumem::core
