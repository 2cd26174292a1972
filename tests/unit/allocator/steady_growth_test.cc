// A program that grows steadily gets memory ahead; for several blocks at one time if they have one size.
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

struct Steadily : EngineTest {
  Steadily() : EngineTest({.limit = gibibytes(48)}) {}
  std::uint64_t growths() const { return backing_.calls(FakeBacking::Call::kObtain); }
};
struct SteadilyBySize : Steadily, testing::WithParamInterface<Bytes> {};

TEST_P(SteadilyBySize, GrowingTakesSeveralBlocksAtOnceAndKeepsLittleMore) {
  constexpr std::size_t kBlocks = 600;
  const Bytes size = GetParam();
  std::vector<Address> all;
  std::uint64_t half = 0;
  for (std::size_t i = 1; i <= kBlocks; ++i) {
    all.push_back(allocate(size));
    const std::uint64_t used = i * size.count;
    EXPECT_LE(backing_.committed(), Bytes{used + used / SteadyGrowth::kPart + mebibytes(2).count});
    if (i == kBlocks / 2) half = growths();
  }
  EXPECT_LE(growths() - half, kBlocks / 2 / 4 + 1);
  free_all(all, size);
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}
INSTANTIATE_TEST_SUITE_P(Sizes, SteadilyBySize, testing::Values(mebibytes(2), mebibytes(20), mebibytes(64)),
                         [](const auto& info) { return std::to_string(info.param.count >> 20) + "MiB"; });

TEST_F(Steadily, GrowingByDifferentSizesTakesAPartAhead) {
  const Bytes first = gibibytes(16);
  const Address most = allocate(first);
  const auto size_of = [](std::uint64_t i) { return mebibytes(20 + 2 * (i % 2)); };
  std::vector<Address> all;
  Bytes used = first;
  for (std::uint64_t i = 0; i < 40; ++i) {
    all.push_back(allocate(size_of(i)));
    used += size_of(i);
    EXPECT_LE(backing_.committed(), used + Bytes{used.count / SteadyGrowth::kPart});
  }
  EXPECT_LE(growths(), 10U);
  for (std::uint64_t i = 0; i < all.size(); ++i) free(all[i], size_of(i));
  free(most, first);
}

TEST(SteadyGrowthTest, WithPausesTakesWhatIsMissing) {
  const auto size_of = [](std::uint64_t i) { return mebibytes(64 + 2 * (i % 2)); };
  SteadyGrowth growth;
  SteadyGrowth::Clock::time_point now{};
  for (std::uint64_t i = 0; i < 10; ++i) {
    now += SteadyGrowth::kPause;
    EXPECT_EQ(growth.bytes_for(size_of(i).count, gibibytes(16).count, mebibytes(2).count, now),
              size_of(i).count);
    growth.grew(size_of(i).count, now);
  }
}

// A request is repeated before the program hears that it is refused.
TEST_F(Steadily, GrowingIsNotToldByRequestsThatAreRefused) {
  constexpr Bytes kSize = mebibytes(16);
  const Address most = allocate(gibibytes(16));
  backing_.set_available(Bytes{});
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(engine_->allocate(kSize, kOne).has_value());
  backing_.set_available({});
  const Address one = allocate(kSize);
  EXPECT_LE(backing_.committed(), gibibytes(16) + mebibytes(32)) << "as a first growth";
  free(one, kSize);
  free(most, gibibytes(16));
}

TEST_F(Steadily, GrowingEndsAtTheLimit) {
  const Bytes size = mebibytes(256);
  free_all(allocate_many(gibibytes(48).count / size.count, size), size);
  EXPECT_TRUE(failed_with(engine_->allocate(gibibytes(49), kOne), Code::kResourceExhausted));
}

}  // namespace
}  // namespace gpumem::allocator::test
