// Small blocks have units of their own: what they leave of one keeps no large memory, and serves all at need.
#include "tests/unit/allocator/engine_fixture.h"

namespace gpumem::allocator::test {
namespace {

constexpr Bytes kUnit = mebibytes(2);

struct SmallUnits : EngineTest {
  SmallUnits() : EngineTest({.limit = mebibytes(64)}) {}
  static std::uint64_t unit_of(Address at) { return at / kUnit.count; }
};

TEST_F(SmallUnits, GatherSmallBlocksThatComeBetweenLargeOnes) {
  const std::vector<Bytes> sizes = {{300}, kibibytes(5), kibibytes(40), kibibytes(200)};
  allocate_many(1, sizes[0]);  // a unit for small blocks is there
  std::vector<Address> large, small;
  for (const Bytes bytes : sizes) {
    large.push_back(allocate(mebibytes(7)));
    small.push_back(allocate(bytes));
  }
  for (const Address at : small) EXPECT_EQ(unit_of(at), unit_of(small[0]));
  free_all(large, mebibytes(7));
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), kUnit) << "no large block's memory is kept by a small block";
}

TEST_F(SmallUnits, GatherSmallBlocksWhereLargeOnesWereFreed) {
  const auto passing = allocate_many(4, mebibytes(8));
  allocate(kibibytes(20));
  free_all(passing, mebibytes(8));
  const auto small = allocate_many(30, kibibytes(20));
  for (const Address at : small) EXPECT_EQ(unit_of(at), unit_of(small[0]));
}

TEST_F(SmallUnits, ServeLargeBlocksBeforeARefusal) {
  allocate({100});
  const Bytes rest = mebibytes(64).minus(kibibytes(128));
  const Address at = allocate(rest);
  EXPECT_EQ(backing_.committed(), mebibytes(64));
  free(at, rest);
  for (int i = 0; i < 3; ++i) free(allocate(rest), rest);
}

TEST_F(SmallUnits, AreOthersOnceTheyAreEmpty) {
  const auto small = allocate_many(32, kibibytes(250));
  free_all(small, kibibytes(250));
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

TEST_F(SmallUnits, BlockExtendsOutOfOneAndIntoOne) {
  const Address first = allocate(kibibytes(100));
  ASSERT_TRUE(succeeded(engine_->extend(first, kibibytes(100), mebibytes(5), kOne)));
  free(first, mebibytes(5));
  const Address large = allocate(mebibytes(3));
  const Address small = allocate(kibibytes(100));
  free(small, kibibytes(100));
  const auto longer = engine_->extend(large, mebibytes(3), mebibytes(9), kOne);
  EXPECT_TRUE(longer || longer.error().code == Code::kAborted) << to_string(longer.error());
  free(large, longer ? mebibytes(9) : mebibytes(3));
}

TEST_F(SmallUnits, ThoseOfSeveralStreamsAreOneAgainWhenTheirWorkIsOver) {
  std::vector<std::pair<Address, StreamHandle>> small;
  for (int i = 0; i < 30; ++i) {
    const StreamHandle on = i % 3 == 0 ? kOne : i % 3 == 1 ? kTwo : kThree;
    small.emplace_back(allocate(kibibytes(128), on), on);
    streams_.give(on);
  }
  for (const auto& [at, on] : small) free(at, kibibytes(128), on);
  EXPECT_TRUE(succeeded(engine_->trim(kAll)));
  EXPECT_EQ(backing_.committed(), Bytes{});
}

}  // namespace
}  // namespace gpumem::allocator::test
