#include <random>

#include "tests/unit/core/memory/pool_fixture.h"

// What a pool keeps ready, before anybody asks and once somebody has.

namespace gpumem::core {
namespace {

using PoolStockTest = PoolTest;

TEST_F(PoolStockTest, TidiesAFreshPoolIntoAStockOfEverySize) {
  fill(gibibytes(24));
  EXPECT_LE(tidy_up(), 16u);
  EXPECT_EQ(pool.warm(), gibibytes(24));
  for (std::size_t i = 0; i + 1 < SizeClasses::kCount; ++i)
    EXPECT_TRUE(pool.take(pool.classes().size(i), 1)) << i;
}

TEST_F(PoolStockTest, TidiesAFragmentedPoolIntoFewExtents) {
  fill_with(12'288, mebibytes(2));
  EXPECT_LT(tidy_up(), 1000u);
  EXPECT_EQ(pool.warm(), gibibytes(24));
  EXPECT_TRUE(pool.take(gibibytes(24), 299));
}

TEST_F(PoolStockTest, TidyingEndsForEverySizeAndMix) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; ++round) {
    const Bytes size = mebibytes(2 * (random() % 20'000));
    start_over(size);
    for (Bytes rest = size; !rest.is_zero();) {
      const Bytes one = pool.classes().size(random() % SizeClasses::kCount);
      if (one > rest) {
        fill_with(1, mebibytes(2));
        rest -= mebibytes(2);
        continue;
      }
      pool.add({ids.next(), one});
      rest -= one;
    }
    EXPECT_LT(tidy_up(), 10'000u) << to_string(size);
    EXPECT_EQ(pool.warm(), size);
  }
}

TEST_F(PoolStockTest, MergesSoFewAtOnceThatTheDriverIsNotBusyForLong) {
  fill_with(1000, mebibytes(2));
  const auto reshape = pool.tidy();
  ASSERT_TRUE(reshape);
  EXPECT_EQ(reshape->destroy.size(), 64u);
  EXPECT_EQ(reshape->create.size(), 16u);
}

TEST_F(PoolStockTest, ReplenishesFromASizeThatHasSomeToSpare) {
  fill_with(8, mebibytes(8));
  fill_with(8, mebibytes(32));
  const auto reshape = pool.tidy();
  ASSERT_TRUE(reshape);
  Bytes broken;
  for (const Extent& extent : reshape->create) broken += extent.size;
  EXPECT_EQ(broken, mebibytes(32)) << "8 are but half of a good stock of 8 MiB";
}

TEST_F(PoolStockTest, FollowsWhatIsAskedFor) {
  fill(gibibytes(24));
  tidy_up();
  EXPECT_EQ(pool.warm_count(mebibytes(64)), 0u);
  for (int i = 0; i < 40; ++i) get(mebibytes(64), kAny, kOneExtent);
  tidy_up();
  EXPECT_GE(pool.warm_count(mebibytes(64)), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(pool.take(mebibytes(64), 1, kOneExtent)) << i;
}

TEST_F(PoolStockTest, FollowsInItsClassesWhatMayComeInParts) {
  fill(gibibytes(24));
  tidy_up();
  for (int i = 0; i < 20; ++i) EXPECT_GE(get(mebibytes(64), kAny).size(), 2u) << "half of it can go back";
  for (int i = 0; i < 10; ++i) {
    tidy_up();
    EXPECT_GE(get(mebibytes(64), kAny, mebibytes(9)).size(), 2u) << "where there is a stock";
  }
  tidy_up();
  EXPECT_GE(pool.warm_count(mebibytes(32)), 20u);
  EXPECT_GE(pool.warm_count(mebibytes(8)), 40u);
  EXPECT_EQ(pool.warm_count(mebibytes(64)), 0u);
}

TEST_F(PoolStockTest, MakesAsOneExtentWhatItsClassesLackAndHasThemNext) {
  fill(gibibytes(24));
  EXPECT_EQ(get(mebibytes(46), kAny, mebibytes(8)).size(), 1u) << "one creation";
  tidy_up();
  for (int i = 0; i < 20; ++i) get(mebibytes(64), kAny, mebibytes(32));
  tidy_up();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(get(mebibytes(64), kAny, mebibytes(32)).size(), 2u) << i;
}

TEST_F(PoolStockTest, GivesALargeRequestInPartsThatCanGoBack) {
  fill(gibibytes(24));
  EXPECT_EQ(get(mebibytes(96), kAny, mebibytes(96)).size(), 1u);
  EXPECT_GT(get(mebibytes(960), kAny, mebibytes(960)).size(), 1u);
  EXPECT_EQ(get(mebibytes(960), 1, kOneExtent).size(), 1u);
}

TEST_F(PoolStockTest, HasNoMoreOfASizeThanDescriptorsAllow) {
  start_over(gibibytes(192));
  fill(gibibytes(192));
  pool.note_demand(gibibytes(20), mebibytes(2));
  tidy_up();
  EXPECT_EQ(pool.warm_count(mebibytes(2)), 256u);
}

TEST_F(PoolStockTest, BreaksNothingThatItCannotSpare) {
  fill_with(1, mebibytes(512));
  EXPECT_FALSE(pool.tidy());
}

TEST_F(PoolStockTest, MakesWhatItsStockLacksOfASizeWithTheFirstOfIt) {
  fill(gibibytes(24));
  for (int i = 0; i < 6; ++i) pool.note_demand(mebibytes(20), kOneExtent);
  const auto making = pool.make(mebibytes(20), 1, kOneExtent);
  ASSERT_TRUE(making);
  EXPECT_EQ(making->destroy.size(), 1u);
  ASSERT_EQ(making->wanted.size(), 1u) << "one driver call is what the request waits for";
  EXPECT_EQ(std::ranges::count(making->rest, mebibytes(20), &Extent::size), 6);
}

TEST_F(PoolStockTest, HasNoStockOfASizeThatWasAskedForOnce) {
  fill(gibibytes(24));
  for (const Bytes size : {mebibytes(20), mebibytes(46), mebibytes(100)}) {
    const auto extents = get(size, 1, kOneExtent);
    ASSERT_EQ(extents.size(), 1u);
    pool.add(extents.front());
    tidy_up();
    EXPECT_EQ(pool.warm_count(size), 0u) << "made up into what the classes take";
  }
  EXPECT_EQ(pool.warm(), gibibytes(24));
}

TEST_F(PoolStockTest, KeepsWhatComesBackOfASizeThatIsAskedFor) {
  fill(gibibytes(24));
  std::vector<Extent> lent;
  for (int i = 0; i < 4; ++i) lent.push_back(get(mebibytes(20), 1, kOneExtent).front());
  for (const Extent& extent : lent) pool.add(extent);
  tidy_up();
  EXPECT_GE(pool.warm_count(mebibytes(20)), 4u);
}

TEST_F(PoolStockTest, ForgetsASizeWhenOthersAreAskedFor) {
  fill(gibibytes(24));
  for (int i = 0; i < 20; ++i) pool.add(get(mebibytes(20), 1, kOneExtent).front());
  tidy_up();
  EXPECT_GE(pool.warm_count(mebibytes(20)), 10u);
  for (int i = 0; i < 4 * 24; ++i) {  // twice a quarter of the pool and more
    for (const Extent& extent : get(mebibytes(140), kAny)) pool.add(extent);
  }
  tidy_up();
  EXPECT_EQ(pool.warm_count(mebibytes(20)), 0u);
  EXPECT_EQ(pool.warm(), gibibytes(24));
}

TEST_F(PoolStockTest, IsHalfOfThePoolAtMostWhateverIsAskedFor) {
  fill(gibibytes(24));
  for (int i = 0; i < 10'000; ++i) pool.note_demand(mebibytes(2 * (2 + i % 7)), kOneExtent);
  tidy_up();
  Bytes stocked;
  for (int i = 0; i < 7; ++i) {
    const Bytes size = mebibytes(2 * (2 + i));
    EXPECT_LE(pool.warm_count(size), 256u);
    if (!pool.classes().has(size)) stocked += {pool.warm_count(size) * size.count};
  }
  EXPECT_LE(stocked, gibibytes(12));
  EXPECT_EQ(get(gibibytes(24), kAny).size() != 0, true) << "and is there for whoever needs all";
}

TEST_F(PoolStockTest, ServesAnyMixOfAnySizesInOneStep) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 500; ++round) {
    start_over(gibibytes(24));
    for (std::size_t i = 0; i < SizeClasses::kCount; ++i) fill_with(random() % 8, pool.classes().size(i));
    for (int i = 0; i < 5; ++i) fill_with(random() % 8, mebibytes(2 * (1 + random() % 300)));
    if (pool.warm().is_zero()) continue;
    const Bytes bytes = mebibytes(2 * (1 + random() % (pool.warm().count / mebibytes(2).count)));
    const Bytes preferences[] = {{}, mebibytes(2), mebibytes(40), kOneExtent};
    const Bytes largest = preferences[random() % 4];
    const std::size_t most = largest == kOneExtent ? 1 : 64;
    const Bytes before = pool.warm();
    EXPECT_LE(get(bytes, most, largest).size(), most);
    EXPECT_EQ(pool.warm(), before - bytes);
  }
}

TEST_F(PoolStockTest, IsTidyAfterAnyRequestsAndReturns) {
  std::mt19937_64 random(37);
  start_over(gibibytes(8));
  fill(gibibytes(8));
  std::vector<Extent> lent;
  for (int round = 0; round < 2000; ++round) {
    const Bytes bytes = mebibytes(2 * (1 + random() % (random() % 10 == 0 ? 700 : 20)));
    if (bytes <= pool.warm() && random() % 2 == 0) {
      std::ranges::copy(get(bytes, kAny, random() % 2 == 0 ? kOneExtent : Bytes{}), std::back_inserter(lent));
    } else if (!lent.empty()) {
      std::swap(lent[random() % lent.size()], lent.back());
      pool.add(lent.back());
      lent.pop_back();
    }
    ASSERT_EQ(pool.warm() + total(lent), gibibytes(8));
    ASSERT_LT(tidy_up(), 1000u);
  }
}

}  // namespace
}  // namespace gpumem::core
