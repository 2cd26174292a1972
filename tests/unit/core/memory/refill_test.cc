#include "daemon/core/memory/refill.h"

#include <gmock/gmock.h>

namespace gpumem::core {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kMany = 1000;
constexpr TimePoint kNow{};

struct RefillTest : testing::Test {
  RefillTest() { refill.plan(gibibytes(3)); }
  std::vector<Bytes> begin() { return refill.begin(kMany); }

  Refill refill{SizeClasses(mebibytes(2))};
};

TEST_F(RefillTest, CreatesALargestExtentInARoundAndGoesOnAtOnce) {
  EXPECT_THAT(begin(), ElementsAre(gibibytes(2)));
  EXPECT_EQ(refill.next(), std::nullopt) << "one round at a time";
  refill.end({.created = gibibytes(2)}, kNow);
  EXPECT_TRUE(refill.is_due(kNow));
  EXPECT_THAT(begin(), ElementsAre(mebibytes(512), mebibytes(512)));
  refill.end({.created = gibibytes(1)}, kNow);
  EXPECT_FALSE(refill.is_due(kNow));
  EXPECT_TRUE(refill.is_exhausted());
}

TEST_F(RefillTest, AsksForNoMoreThanTheDriverHasToSpare) {
  begin();
  refill.end({.created = gibibytes(2), .room = mebibytes(700)}, kNow);
  EXPECT_THAT(begin(), testing::Each(testing::Le(mebibytes(512))));
  refill.end({.created = mebibytes(700), .room = mebibytes(1)}, kNow);
  EXPECT_TRUE(refill.is_exhausted());
  EXPECT_FALSE(refill.is_due(kNow));
  EXPECT_EQ(refill.next(), kNow + Refill::kFirstPause);
  EXPECT_THAT(begin(), ElementsAre(mebibytes(2))) << "to find out whether there is room now";
}

TEST_F(RefillTest, TriesRefusedMemoryInSmallerExtentsUntilTheSmallestAreRefused) {
  Bytes refused = gibibytes(2);
  EXPECT_THAT(begin(), ElementsAre(refused));
  for (; refused > mebibytes(2); refused = {refused.count / 4}) {
    refill.end({.refused = refused}, kNow);
    EXPECT_TRUE(refill.is_due(kNow));
    EXPECT_THAT(begin(), testing::AllOf(testing::SizeIs(4), testing::Each(Bytes{refused.count / 4})));
  }
  refill.end({.created = mebibytes(4), .refused = refused}, kNow);
  EXPECT_TRUE(refill.is_exhausted());
  EXPECT_FALSE(refill.is_due(kNow));
}

// Charges besides the pool have any size, and so has what a guarantee still needs.
TEST_F(RefillTest, CreatesAnExtentForADemandOfLess) {
  refill.set_demand({.bytes = mebibytes(1)}, kNow);
  EXPECT_THAT(begin(), ElementsAre(mebibytes(2)));
}

TEST_F(RefillTest, SplitsNothingWhereThereMayBeNoMoreExtents) {
  begin();
  refill.end({.refused = gibibytes(2), .may_split = false}, kNow);
  EXPECT_FALSE(refill.is_due(kNow));
}

TEST_F(RefillTest, PausesAfterARoundOfNothing) {
  EXPECT_THAT(refill.begin(0), IsEmpty());
  refill.end({}, kNow);
  EXPECT_FALSE(refill.is_due(kNow));
}

TEST_F(RefillTest, LooksForLostMemoryAfterAPauseOnceThePoolWasWhole) {
  Refill whole{SizeClasses(mebibytes(2))};
  EXPECT_EQ(whole.next(), std::nullopt);
  whole.lose(mebibytes(8), kNow);
  EXPECT_EQ(whole.missing(), mebibytes(8));
  EXPECT_EQ(whole.next(), kNow + Refill::kFirstPause);
}

TEST_F(RefillTest, ForgetsWhatWasRefusedOnceThePoolIsWhole) {
  refill.plan(mebibytes(8));
  begin();
  refill.end({.created = mebibytes(8), .room = Bytes{}}, kNow);
  refill.lose(mebibytes(8), kNow);
  EXPECT_FALSE(refill.is_exhausted());
  EXPECT_THAT(begin(), ElementsAre(mebibytes(8)));
}

}  // namespace
}  // namespace gpumem::core
