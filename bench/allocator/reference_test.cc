#include <gtest/gtest.h>

#include <map>

#include "bench/allocator/bfc.h"
#include "bench/allocator/caching.h"
#include "bench/allocator/dice.h"
#include "bench/allocator/rmm_pool.h"

// The references must be right themselves, and keep the rules they are named after.

namespace gpumem::bench {
namespace {

constexpr Bytes kCapacity = gibibytes(4);

struct Expandable : Caching {
  explicit Expandable(Bytes capacity) : Caching(capacity, Segments::kExpandable) {}
};

template <class Pool>
struct ReferenceTest : testing::Test {
  Pool pool{kCapacity};
};
using Pools = testing::Types<Bfc, RmmPool, Caching, Expandable>;
TYPED_TEST_SUITE(ReferenceTest, Pools);

TYPED_TEST(ReferenceTest, BlocksInUseNeverOverlapWhateverIsFreedInWhateverOrder) {
  Dice dice(11);
  std::map<std::uint64_t, std::uint64_t> in_use;
  std::vector<std::pair<std::uint64_t, Bytes>> held;
  for (int i = 0; i < 20'000; ++i) {
    const auto stream = static_cast<std::uint32_t>(dice.below(3));
    if (held.empty() || dice.chance(held.size() < 200 ? 0.6 : 0.4)) {
      const Bytes bytes{1 + static_cast<std::uint64_t>(dice.log_normal(100'000, 2)) % (64ULL << 20)};
      const std::uint64_t at = this->pool.allocate(bytes, stream);
      if (at == 0) continue;
      const auto behind = in_use.lower_bound(at);
      ASSERT_TRUE(behind == in_use.end() || at + bytes.count <= behind->first);
      ASSERT_TRUE(behind == in_use.begin() || std::prev(behind)->first + std::prev(behind)->second <= at);
      ASSERT_EQ(at % 256, 0U);
      in_use.emplace(at, bytes.count);
      held.emplace_back(at, bytes);
    } else {
      std::swap(held[dice.below(held.size())], held.back());
      this->pool.deallocate(held.back().first, held.back().second, stream);
      in_use.erase(held.back().first);
      held.pop_back();
    }
  }
  EXPECT_LE(this->pool.committed(), kCapacity);
}

TYPED_TEST(ReferenceTest, WhatWasFreedServesTheSameStreamAgain) {
  const std::uint64_t first = this->pool.allocate(mebibytes(30), 0);
  this->pool.deallocate(first, mebibytes(30), 0);
  const Bytes committed = this->pool.committed();
  EXPECT_EQ(this->pool.allocate(mebibytes(30), 0), first);
  EXPECT_EQ(this->pool.committed(), committed);
}

TYPED_TEST(ReferenceTest, OutOfMemoryIsAnAnswer) {
  EXPECT_EQ(this->pool.allocate(kCapacity + mebibytes(2), 0), 0U);
  EXPECT_NE(this->pool.allocate(gibibytes(2), 0), 0U);
}

TEST(BfcRules, RegionsDoubleAndNeighboursAreJoined) {
  Bfc pool(kCapacity);
  const std::uint64_t first = pool.allocate(kibibytes(512), 0);
  const std::uint64_t second = pool.allocate(kibibytes(512), 0);
  EXPECT_EQ(second, first + (512 << 10)) << "one region of 1 MiB";
  EXPECT_EQ(pool.committed(), mebibytes(2)) << "which a granule holds";
  const std::uint64_t third = pool.allocate(kibibytes(512), 0);
  EXPECT_EQ(pool.committed(), mebibytes(4)) << "another one of 2 MiB";
  pool.deallocate(second, kibibytes(512), 0);
  pool.deallocate(first, kibibytes(512), 0);
  EXPECT_EQ(pool.allocate(mebibytes(1), 0), first);
  pool.deallocate(third, kibibytes(512), 0);
}

TEST(BfcRules, AChunkLessThanTwiceAsLargeIsNotSplit) {
  Bfc pool(kCapacity);
  const std::uint64_t whole = pool.allocate(mebibytes(1), 0);
  pool.deallocate(whole, mebibytes(1), 0);
  EXPECT_EQ(pool.allocate(kibibytes(600), 0), whole);
  EXPECT_GT(pool.allocate(kibibytes(256), 0), whole + (1 << 20)) << "from a region of its own";
}

TEST(RmmRules, ThePoolIsDoubled) {
  RmmPool pool(kCapacity);
  pool.allocate(mebibytes(64), 0);
  EXPECT_EQ(pool.committed(), mebibytes(64));
  pool.allocate(mebibytes(2), 0);
  EXPECT_EQ(pool.committed(), mebibytes(128));
}

TEST(RmmRules, AnotherStreamsBlocksAreTakenBeforeThePoolGrows) {
  RmmPool pool(kCapacity);
  const std::uint64_t first = pool.allocate(mebibytes(64), 0);
  pool.deallocate(first, mebibytes(64), 0);
  EXPECT_EQ(pool.allocate(mebibytes(64), 1), first);
}

TEST(CachingRules, SegmentsAreOfThreeKinds) {
  Caching pool(kCapacity);
  pool.allocate({1}, 0);
  EXPECT_EQ(pool.committed(), mebibytes(2));
  pool.allocate(mebibytes(2), 0);
  EXPECT_EQ(pool.committed(), mebibytes(22));
  pool.allocate(mebibytes(11), 0);
  EXPECT_EQ(pool.committed(), mebibytes(22)) << "from the rest of the 20 MiB";
  pool.allocate(mebibytes(33), 0);
  EXPECT_EQ(pool.committed(), mebibytes(56)) << "in multiples of 2 MiB";
}

TEST(CachingRules, AStreamsBlocksServeNoOther) {
  Caching pool(kCapacity);
  const std::uint64_t first = pool.allocate(mebibytes(64), 0);
  pool.deallocate(first, mebibytes(64), 0);
  EXPECT_NE(pool.allocate(mebibytes(64), 1), first);
}

TEST(CachingRules, FreeSegmentsGoBackBeforeMemoryIsOut) {
  Caching pool(gibibytes(1));
  const std::uint64_t first = pool.allocate(mebibytes(700), 0);
  pool.deallocate(first, mebibytes(700), 0);
  EXPECT_NE(pool.allocate(mebibytes(800), 0), 0U);
  EXPECT_EQ(pool.committed(), mebibytes(800));
}

TEST(ExpandableRules, TheLastFreeBlockGrowsInPlace) {
  Expandable pool(kCapacity);
  const std::uint64_t first = pool.allocate(mebibytes(40), 0);
  pool.deallocate(first, mebibytes(40), 0);
  EXPECT_EQ(pool.allocate(mebibytes(60), 0), first);
  EXPECT_EQ(pool.committed(), mebibytes(60));
}

}  // namespace
}  // namespace gpumem::bench
