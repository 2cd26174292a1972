#include <random>
#include <set>

#include "tests/unit/core/memory/pool_fixture.h"

namespace gpumem::core {
namespace {

TEST_F(PoolTest, GivesExtentsThatAddUpLargestFirst) {
  fill(mebibytes(42));
  const auto taken = pool.take(mebibytes(10), kAny);
  ASSERT_TRUE(taken);
  ASSERT_EQ(taken->size(), 2u);
  EXPECT_EQ(taken->at(0).size, mebibytes(8));
  EXPECT_EQ(taken->at(1).size, mebibytes(2));
  EXPECT_EQ(pool.warm(), mebibytes(32));
}

TEST_F(PoolTest, GivesNothingRatherThanTooMuchOrTooLittle) {
  fill(mebibytes(32));
  EXPECT_FALSE(pool.take(mebibytes(2), kAny));
  EXPECT_FALSE(pool.take(mebibytes(34), kAny));
  EXPECT_EQ(pool.warm(), mebibytes(32));
  EXPECT_EQ(pool.warm_count(mebibytes(32)), 1u);
}

TEST_F(PoolTest, GivesNoMoreExtentsThanAllowed) {
  fill_with(16, mebibytes(2));
  EXPECT_FALSE(pool.take(mebibytes(32), 15));
  EXPECT_TRUE(pool.take(mebibytes(32), 16));
}

TEST_F(PoolTest, PrefersExtentsOfTheSizeThatIsWishedForWhileThereIsAStockOfThem) {
  fill_with(64, mebibytes(2));
  fill_with(16, mebibytes(8));
  fill_with(8, mebibytes(32));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, mebibytes(8))), std::vector<Bytes>(4, mebibytes(8)));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, mebibytes(9))), std::vector<Bytes>(4, mebibytes(8)))
      << "any number serves as a wish";
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, mebibytes(2))), std::vector<Bytes>(16, mebibytes(2)));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, {1})), std::vector<Bytes>(16, mebibytes(2)));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, {})), std::vector<Bytes>(1, mebibytes(32)));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, {~0ULL})), std::vector<Bytes>(1, mebibytes(32)));
}

TEST_F(PoolTest, LeavesHalfOfAGoodStockOfSmallExtentsToThoseWhoNeedThem) {
  fill_with(64, mebibytes(2));
  fill_with(2, mebibytes(128));
  while (pool.warm_count(mebibytes(2)) > 32) ASSERT_TRUE(pool.take(mebibytes(2), kAny, mebibytes(2)));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(128), kAny, mebibytes(2))), std::vector<Bytes>(1, mebibytes(128)))
      << "rather than all of the small ones";
  EXPECT_EQ(sizes_of(pool.take(mebibytes(2), kAny, mebibytes(2))), std::vector<Bytes>(1, mebibytes(2)))
      << "what can only be had small is taken small";
}

TEST_F(PoolTest, GivesTheNextSizeThatServesRatherThanBreakAnything) {
  fill_with(4, mebibytes(2));
  fill_with(16, mebibytes(8));
  fill_with(2, mebibytes(512));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, mebibytes(2))), std::vector<Bytes>(4, mebibytes(8)));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(512), kAny, mebibytes(2))), std::vector<Bytes>(1, mebibytes(512)));
}

TEST_F(PoolTest, TakesASizeThatIsWishedForWithinTheNumberAllowed) {
  start_over(gibibytes(24));
  fill_with(64, mebibytes(2));
  fill_with(1, mebibytes(32));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), 15, mebibytes(2))), std::vector<Bytes>(1, mebibytes(32)));
}

TEST_F(PoolTest, GivesWhateverItCouldGiveWithoutAWishWithAnyWishToo) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 300; ++round) {
    start_over(gibibytes(24));
    for (std::size_t i = 0; i < SizeClasses::kCount; ++i) fill_with(random() % 40, pool.classes().size(i));
    const Bytes before = pool.warm();
    const Bytes bytes = mebibytes(2 * (1 + random() % 4096));
    Pool same = pool;
    const auto without = same.take(bytes, 64);
    const auto with = pool.take(bytes, 64, {random() >> (random() % 64)});
    EXPECT_TRUE(with.has_value() || !without.has_value()) << to_string(bytes);
    if (!with) continue;
    Bytes sum;
    for (const Extent& extent : *with) sum += extent.size;
    EXPECT_EQ(sum, bytes);
    EXPECT_LE(with->size(), 64u);
    EXPECT_EQ(pool.warm(), before - bytes);
  }
}

TEST_F(PoolTest, NeverGivesAnExtentTwice) {
  fill(gibibytes(1));
  std::set<ExtentId> seen;
  while (!pool.warm().is_zero()) {
    const Bytes before = pool.warm();
    for (const Extent& extent : get(mebibytes(2), kAny)) EXPECT_TRUE(seen.insert(extent.id).second);
    ASSERT_LT(pool.warm(), before);
  }
}

TEST_F(PoolTest, BreaksTheSmallestExtentThatServes) {
  fill_with(1, mebibytes(512));
  fill_with(1, mebibytes(32));
  const auto making = pool.make(mebibytes(4), kAny);
  ASSERT_TRUE(making);
  EXPECT_EQ(making->destroy.size(), 1u);
  EXPECT_EQ(pool.warm(), mebibytes(512));
}

TEST_F(PoolTest, MakesNothingOfMoreThanThereIs) {
  fill(gibibytes(1));
  for (const Bytes largest : {Bytes{}, mebibytes(2), kOneExtent}) {
    EXPECT_FALSE(pool.make(gibibytes(1) + mebibytes(2), kAny, largest));
    EXPECT_FALSE(pool.make({~0ULL - (2 << 20) + 1}, kAny, largest));
  }
  EXPECT_EQ(pool.warm(), gibibytes(1));
}

TEST_F(PoolTest, MergesWhatIsTooManyPieces) {
  fill_with(4096, mebibytes(2));
  EXPECT_LE(get(gibibytes(8), 16).size(), 16u);
  EXPECT_EQ(pool.warm(), Bytes{0});
}

TEST_F(PoolTest, OfOnePieceWorksLikeAnyOther) {
  start_over(mebibytes(2));
  fill(mebibytes(2));
  EXPECT_FALSE(pool.tidy());
  EXPECT_TRUE(pool.take(mebibytes(2), 1));
  EXPECT_FALSE(pool.tidy());
  EXPECT_FALSE(pool.make(mebibytes(2), 1));
}

TEST_F(PoolTest, WithoutMemoryWantsNothing) {
  start_over({});
  EXPECT_FALSE(pool.tidy());
  EXPECT_TRUE(pool.plan({}).empty());
}

TEST_F(PoolTest, LeavesHalfOfAGoodStockThoughTheSmallOnesWouldDo) {
  fill_with(40, mebibytes(2));
  fill_with(1, mebibytes(32));
  EXPECT_EQ(sizes_of(pool.take(mebibytes(32), kAny, mebibytes(2))), std::vector<Bytes>(1, mebibytes(32)))
      << "32 of 64 stay";
}

}  // namespace
}  // namespace gpumem::core
