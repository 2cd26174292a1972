#include "client/allocator/heap.h"

#include <gtest/gtest.h>

// The heap's bookkeeping by itself: whose a free span is, until when, and how much was free.

namespace gpumem::allocator {
namespace {

class HeapTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kUnit = mebibytes(2).count;
  static constexpr Address kBase = Address{1} << 40;
  static constexpr StreamIndex kStream = 1;
  static constexpr StreamIndex kOther = 2;

  void map(std::uint64_t units, Address at = kBase) {
    heap.add(heap.gap_around(at), at, units * kUnit, kNoStream, 0);
  }
  Span* take(std::uint64_t units, StreamIndex stream = kStream) {
    return heap.take(units * kUnit, Cut::kSpan, stream);
  }

  Heap heap{kBase, {64 * kUnit}, kUnit};
};

TEST_F(HeapTest, SpanThatMergesWithAYoungerOneWaitsAsLongAsThat) {
  map(2);
  for (const bool is_behind : {false, true}) {
    Span* halves[] = {take(1), take(1)};
    ASSERT_LT(halves[0]->base, halves[1]->base);
    heap.free(*halves[is_behind], kStream, 7);
    heap.free(*halves[!is_behind], kStream, 3);
    heap.pass_on(kStream, 5, kNoStream, 0);
    EXPECT_EQ(take(2, kOther), nullptr) << "work of the stream may still use a half";
    heap.pass_on(kStream, 8, kNoStream, 0);
    Span* whole = take(2, kOther);
    ASSERT_NE(whole, nullptr);
    heap.free(*whole, kNoStream, 0);
  }
}

TEST_F(HeapTest, LeastThatWasFreeKnowsOfWhatWasUnmapped) {
  map(4);
  static_cast<void>(heap.take_low_water());
  heap.release(heap.cut(*heap.free_spans().fit(4 * kUnit, Cut::kSpan, kNoStream), kBase, 3 * kUnit));
  map(3);
  EXPECT_EQ(heap.take_low_water(), kUnit);
  EXPECT_EQ(heap.free_bytes(), 4 * kUnit);
}

TEST_F(HeapTest, TakesTheSmallerOfTheStreamsOwnAndTheUnownedSpan) {
  map(2);
  map(1, kBase + 8 * kUnit);
  Span* own = take(2);
  ASSERT_EQ(own->base, kBase);
  heap.free(*own, kStream, 1);
  EXPECT_EQ(take(1)->base, kBase + 8 * kUnit) << "it fits exactly";
}

TEST_F(HeapTest, SlabTakesTheLowestOfTheSpansThatFitBest) {
  map(2);
  map(1, kBase + 8 * kUnit);
  EXPECT_EQ(heap.take(2 * kGranule, Cut::kSlab, kStream)->base, kBase);
  EXPECT_EQ(heap.take(2 * kGranule, Cut::kSpan, kStream)->base, kBase + 8 * kUnit) << "the best fit";
}

TEST_F(HeapTest, NoSlabLiesAcrossTwoUnits) {
  const Address at = kBase + kUnit - kGranule;
  heap.add(heap.gap_around(at), at, kUnit / 2, kNoStream, 0);
  const Span* slab = heap.take(4 * kGranule, Cut::kSlab, kStream);
  ASSERT_NE(slab, nullptr);
  EXPECT_EQ(slab->base, kBase + kUnit);
}

}  // namespace
}  // namespace gpumem::allocator
