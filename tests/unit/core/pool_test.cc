#include "daemon/core/pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>

namespace gpumem::core {
namespace {

constexpr std::size_t kAny = 1024;

class PoolTest : public testing::Test {
 protected:
  void fill(Bytes bytes) {
    for (const Extent& extent : pool.plan(bytes)) pool.add(extent);
  }
  void fill_with(std::size_t count, Bytes size) {
    for (std::size_t i = 0; i < count; ++i) pool.add({ids.next(), size});
  }
  // Does what the driver would do; checks that no byte is lost or made.
  void apply(const Reshape& reshape, Bytes before) {
    for (const Extent& extent : reshape.create) pool.add(extent);
    ASSERT_EQ(pool.warm(), before);
  }
  // Reshapes until `bytes` can be taken; answers how many steps it took.
  std::size_t steps_until_taken(Bytes bytes, std::size_t most) {
    for (std::size_t steps = 0;; ++steps) {
      if (pool.take(bytes, most)) return steps;
      const Bytes before = pool.warm();
      auto reshape = pool.reshape_for(bytes, most);
      EXPECT_TRUE(reshape) << "what is there is enough";
      if (!reshape) return steps;
      apply(*reshape, before);
    }
  }
  std::size_t tidy_up() {
    for (std::size_t steps = 0;; ++steps) {
      const Bytes before = pool.warm();
      auto reshape = pool.tidy();
      if (!reshape || steps == 10'000) return steps;
      apply(*reshape, before);
    }
  }

  IdSource<ExtentId> ids;
  void start_over(Bytes size) { held_.emplace(size, mebibytes(2), ids); }

  std::optional<Pool> held_{std::in_place, gibibytes(24), mebibytes(2), ids};
  Pool& pool = *held_;
};

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
  EXPECT_EQ(pool.warm_count(), 1u);
}

TEST_F(PoolTest, GivesNoMoreExtentsThanAllowed) {
  fill_with(16, mebibytes(2));
  EXPECT_FALSE(pool.take(mebibytes(32), 15));
  EXPECT_TRUE(pool.take(mebibytes(32), 16));
}

// The sizes of what is taken, largest first; none if nothing is.
std::vector<Bytes> sizes_of(const std::optional<std::vector<Extent>>& taken) {
  std::vector<Bytes> sizes;
  for (const Extent& extent : taken.value_or(std::vector<Extent>())) sizes.push_back(extent.size);
  return sizes;
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
  while (pool.warm_count() > 34) ASSERT_TRUE(pool.take(mebibytes(2), kAny, mebibytes(2)));
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
    if (const auto reshape = pool.reshape_for(mebibytes(2), kAny)) {
      for (const ExtentId id : reshape->destroy) EXPECT_TRUE(seen.insert(id).second);
      apply(*reshape, before);
    }
    const auto taken = pool.take(mebibytes(2), kAny);
    ASSERT_TRUE(taken);
    for (const Extent& extent : *taken) EXPECT_TRUE(seen.insert(extent.id).second);
  }
}

TEST_F(PoolTest, BreaksTheSmallestExtentThatServes) {
  fill_with(1, mebibytes(512));
  fill_with(1, mebibytes(32));
  const auto reshape = pool.reshape_for(mebibytes(4), kAny);
  ASSERT_TRUE(reshape);
  EXPECT_EQ(reshape->destroy.size(), 1u);
  EXPECT_EQ(pool.warm(), mebibytes(512));
}

TEST_F(PoolTest, HasNoReshapeForMoreThanThereIs) {
  fill(gibibytes(1));
  EXPECT_FALSE(pool.reshape_for(gibibytes(1) + mebibytes(2), kAny));
  EXPECT_FALSE(pool.reshape_for({~0ULL - (2 << 20) + 1}, kAny));
}

TEST_F(PoolTest, MergesWhatIsTooManyPieces) {
  fill_with(4096, mebibytes(2));
  EXPECT_LE(steps_until_taken(gibibytes(8), 16), 5u);
  EXPECT_EQ(pool.warm(), Bytes{0});
}

TEST_F(PoolTest, ServesAnyMixInFewStepsWithoutLosingAByte) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    start_over(gibibytes(24));
    for (std::size_t i = 0; i < SizeClasses::kCount; ++i) fill_with(random() % 40, pool.classes().size(i));
    if (pool.warm().is_zero()) continue;
    const Bytes bytes = mebibytes(2 * (1 + random() % (pool.warm().count / mebibytes(2).count)));
    const Bytes before = pool.warm();
    EXPECT_LE(steps_until_taken(bytes, 64), SizeClasses::kCount + 1);
    EXPECT_EQ(pool.warm(), before - bytes);
  }
}

TEST_F(PoolTest, TidiesAFreshPoolIntoAStockOfEverySize) {
  fill(gibibytes(24));
  EXPECT_LE(tidy_up(), 16u);
  EXPECT_EQ(pool.warm(), gibibytes(24));
  for (std::size_t i = 0; i + 1 < SizeClasses::kCount; ++i)
    EXPECT_TRUE(pool.take(pool.classes().size(i), 1)) << i;
}

TEST_F(PoolTest, TidiesAFragmentedPoolIntoFewExtents) {
  fill_with(12'288, mebibytes(2));
  EXPECT_LT(tidy_up(), 1000u);
  EXPECT_EQ(pool.warm(), gibibytes(24));
  EXPECT_LT(pool.warm_count(), 300u);
}

TEST_F(PoolTest, TidyingEndsForEverySizeAndMix) {
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

TEST_F(PoolTest, OfOnePieceWorksLikeAnyOther) {
  start_over(mebibytes(2));
  fill(mebibytes(2));
  EXPECT_FALSE(pool.tidy());
  EXPECT_TRUE(pool.take(mebibytes(2), 1));
  EXPECT_FALSE(pool.tidy());
  EXPECT_FALSE(pool.reshape_for(mebibytes(2), 1));
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

TEST_F(PoolTest, MergesSoFewAtOnceThatTheDriverIsNotBusyForLong) {
  fill_with(1000, mebibytes(2));
  const auto reshape = pool.tidy();
  ASSERT_TRUE(reshape);
  EXPECT_EQ(reshape->destroy.size(), 64u);
  EXPECT_EQ(reshape->create.size(), 16u);
}

TEST_F(PoolTest, ReplenishesFromASizeThatHasSomeToSpare) {
  fill_with(8, mebibytes(8));
  fill_with(8, mebibytes(32));
  const auto reshape = pool.tidy();
  ASSERT_TRUE(reshape);
  Bytes broken;
  for (const Extent& extent : reshape->create) broken += extent.size;
  EXPECT_EQ(broken, mebibytes(32)) << "8 are but half of a good stock of 8 MiB";
}

}  // namespace
}  // namespace gpumem::core
