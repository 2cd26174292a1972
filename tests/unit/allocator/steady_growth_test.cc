// A program that allocates block after block of one size gets memory for several at one time.
#include <algorithm>

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
  std::uint64_t half = 0, half_extents = 0;
  for (std::size_t i = 1; i <= kBlocks; ++i) {
    all.push_back(allocate(size));
    const std::uint64_t used = i * size.count;
    EXPECT_LE(backing_.committed(), Bytes{used + used / SteadyGrowth::kPart + mebibytes(2).count});
    if (i != kBlocks / 2) continue;
    half = growths();
    half_extents = backing_.extents();
  }
  const std::uint64_t at_once = std::min<std::uint64_t>(4, SteadyGrowth::kMost.count / size.count);
  EXPECT_LE(growths() - half, kBlocks / 2 / at_once + 1);
  EXPECT_LE(backing_.extents() - half_extents, growths() - half) << "one extent each";
  free_all(all, size);
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}
INSTANTIATE_TEST_SUITE_P(Sizes, SteadilyBySize, testing::Values(mebibytes(2), mebibytes(20), mebibytes(64)),
                         [](const auto& info) { return std::to_string(info.param.count >> 20) + "MiB"; });

TEST_F(Steadily, GrowingByDifferentSizesTakesWhatIsMissing) {
  const Address most = allocate(gibibytes(16));
  std::vector<Address> all;
  for (std::uint64_t i = 0; i < 20; ++i) all.push_back(allocate(mebibytes(64 + 2 * (i % 2))));
  EXPECT_EQ(growths(), 21U);
  for (std::uint64_t i = 0; i < 20; ++i) free(all[i], mebibytes(64 + 2 * (i % 2)));
  free(most, gibibytes(16));
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
