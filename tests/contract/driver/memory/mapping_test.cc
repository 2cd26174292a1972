// Addresses: several extents side by side, unmapped from the end, all of them or none.
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Mapping = DriverTest;

std::vector<cuda::Allocation> several(int count, Bytes size) {
  std::vector<cuda::Allocation> all;
  for (int i = 0; i < count; ++i) all.push_back(allocate(size));
  return all;
}

Result<cuda::Mapping> map_at(cuda::Address at, const std::vector<cuda::Allocation>& allocations) {
  return cuda::Mapping::create(driver(), at, allocations, device().ordinal);
}

TEST_IN_PROCESS(Mapping, ShowsSeveralExtentsAsOneRange) {
  const cuda::Reservation addresses = reserve({3 * unit_.count});
  EXPECT_EQ(addresses.base() % unit_.count, 0U);
  auto mapping = map_at(addresses.base(), several(3, unit_));
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_EQ(mapping->size().count, 3 * unit_.count);
  fill(addresses.base(), mapping->size(), 3);
  EXPECT_TRUE(holds(addresses.base(), mapping->size(), 3));
}

TEST_IN_PROCESS(Mapping, IsTruncatedFromTheEndAndGrowsAgain) {
  const cuda::Reservation addresses = reserve({3 * unit_.count});
  auto mapping = map_at(addresses.base(), several(3, unit_));
  ASSERT_TRUE(mapping);
  fill(addresses.base(), {3 * unit_.count}, 1);
  const cuda::Address end = addresses.base() + unit_.count;
  EXPECT_TRUE(mapping->truncate(end));
  EXPECT_EQ(mapping->size(), unit_);
  EXPECT_TRUE(holds(addresses.base(), unit_, 1)) << "what stays is untouched";
  EXPECT_TRUE(mapping->truncate(end));
  EXPECT_EQ(mapping->size(), unit_) << "nothing more to unmap";
  auto more = map_at(end, several(2, unit_));
  ASSERT_TRUE(more) << more.error().message;
  EXPECT_TRUE(holds(end, {2 * unit_.count}, 0)) << "new memory";
}

TEST_F(Mapping, IsAllOrNothing) {
  in_process([this] {
    const cuda::Reservation addresses = reserve({3 * unit_.count});
    auto last = map_at(addresses.base() + 2 * unit_.count, several(1, unit_));
    ASSERT_TRUE(last);
    auto over_it = map_at(addresses.base(), several(3, unit_));
    ASSERT_FALSE(over_it) << "the third address is taken";
    EXPECT_EQ(over_it.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(map_at(addresses.base(), several(2, unit_))) << "the first two are free again";
  });
  expect_used(0);
}

TEST_IN_PROCESS(Mapping, OutsideAReservationIsRefused) {
  cuda::Address gone = 0;
  gone = reserve(unit_).base();
  auto mapping = map_at(gone, several(1, unit_));
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, Code::kInvalidArgument);
  const cuda::Reservation addresses = reserve(unit_);
  EXPECT_FALSE(map_at(addresses.base(), several(2, unit_))) << "past its end";
  EXPECT_TRUE(map_at(addresses.base(), several(1, unit_)));
}

TEST_IN_PROCESS(Mapping, OfOneExtentInTwoPlacesShowsTheSameMemory) {
  const cuda::Allocation one = allocate(unit_);
  const Mapped first = map(one), second = map(one);
  EXPECT_NE(first.range.base(), second.range.base());
  fill(first.range.base(), unit_, 9);
  EXPECT_TRUE(holds(second.range.base(), unit_, 9));
}

TEST_F(Mapping, NeedsNoContextAndMakesNone) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate(block_);
    const UniqueFd descriptor = exported(one);
    const Mapped mapped = map(import(descriptor, block_));
    CUcontext context = nullptr;
    driver().api().cuCtxGetCurrent(&context);
    EXPECT_EQ(context, nullptr);
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(block_.count);
  process.signal_and_join();
}

TEST_F(Mapping, MovesWithItsOwnerAndEndsWithTheLast) {
  Process process([this](Channel& channel) {
    Mapped mapped = map(allocate(block_));
    fill(mapped.range.base(), block_, 4);
    {
      cuda::Mapping moved = std::move(mapped.mapping);
      EXPECT_TRUE(holds(mapped.range.base(), block_, 4));
      mapped.mapping = std::move(moved);
    }
    EXPECT_TRUE(holds(mapped.range.base(), block_, 4)) << "the moved-from one took nothing along";
    mapped.mapping = {};
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

}  // namespace
}  // namespace gpumem::contract
