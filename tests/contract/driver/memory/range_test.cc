// Addresses by the rules of the raw calls: whole mappings only, from offset zero, granular.
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Range = DriverTest;

// `count` mappings of two units each, side by side, with access.
struct Row {
  explicit Row(int count, Bytes unit)
      : size(2 * unit.count), range(reserve({static_cast<unsigned>(count) * size})) {
    for (int i = 0; i < count; ++i) {
      const cuda::Allocation one = allocate({size});
      must(calls().cuMemMap(at(i), size, 0, one.handle(), 0));
    }
    must(set_access(at(0), static_cast<unsigned>(count) * size));
  }
  cuda::Address at(int index) const { return range.base() + static_cast<unsigned>(index) * size; }

  std::uint64_t size;
  cuda::Reservation range;
};

TEST_IN_PROCESS(Range, OfAddressesIsAlignedAsAsked) {
  for (const std::uint64_t alignment : {unit_.count, 4 * unit_.count, 64 * unit_.count}) {
    CUdeviceptr at = 0;
    ASSERT_OK(calls().cuMemAddressReserve(&at, (driver(), unit_.count), alignment, 0, 0));
    EXPECT_EQ(at % alignment, 0U);
    EXPECT_OK(calls().cuMemAddressFree(at, unit_.count));
  }
}

TEST_IN_PROCESS(Range, IsFreedOnlyAsItWasReserved) {
  driver();
  CUdeviceptr at = 0;
  ASSERT_OK(calls().cuMemAddressReserve(&at, 4 * unit_.count, 0, 0, 0));
  EXPECT_REFUSED(calls().cuMemAddressFree(at, 2 * unit_.count)) << "another size";
  EXPECT_REFUSED(calls().cuMemAddressFree(at + unit_.count, 3 * unit_.count)) << "another start";
  EXPECT_OK(calls().cuMemAddressFree(at, 4 * unit_.count));
  EXPECT_REFUSED(calls().cuMemAddressFree(at, 4 * unit_.count)) << "a second time";
}

TEST_F(Range, OfMoreAddressesThanMemoryCostsNothing) {
  Process process([this](Channel& channel) {
    const cuda::Reservation range = reserve({16 * total_.rounded_down(unit_).count});
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(0);
  process.signal_and_join();
}

TEST_IN_PROCESS(Range, MapsFromOffsetZeroOnly) {
  const cuda::Allocation two = allocate({2 * unit_.count});
  const cuda::Reservation range = reserve(unit_);
  EXPECT_REFUSED(calls().cuMemMap(range.base(), unit_.count, unit_.count, two.handle(), 0));
}

TEST_IN_PROCESS(Range, MapsNoMoreThanTheExtentHas) {
  const cuda::Allocation one = allocate(unit_);
  const cuda::Reservation range = reserve({2 * unit_.count});
  EXPECT_REFUSED(calls().cuMemMap(range.base(), 2 * unit_.count, 0, one.handle(), 0));
}

TEST_IN_PROCESS(Range, MapsAtGranularAddressesAndSizesOnly) {
  const cuda::Allocation two = allocate({2 * unit_.count});
  const cuda::Reservation range = reserve({4 * unit_.count});
  EXPECT_REFUSED(calls().cuMemMap(range.base() + 4096, 2 * unit_.count, 0, two.handle(), 0));
  EXPECT_REFUSED(calls().cuMemMap(range.base(), unit_.count + 4096, 0, two.handle(), 0));
  EXPECT_REFUSED(calls().cuMemMap(range.base(), 0, 0, two.handle(), 0));
  EXPECT_OK(calls().cuMemMap(range.base(), 2 * unit_.count, 0, two.handle(), 0))
      << "what is right still works";
  EXPECT_OK(calls().cuMemUnmap(range.base(), 2 * unit_.count));
}

TEST_IN_PROCESS(Range, HoldsOneMappingAtATime) {
  const cuda::Allocation one = allocate(unit_);
  const cuda::Reservation range = reserve(unit_);
  ASSERT_OK(calls().cuMemMap(range.base(), unit_.count, 0, one.handle(), 0));
  EXPECT_REFUSED(calls().cuMemMap(range.base(), unit_.count, 0, one.handle(), 0));
  EXPECT_OK(calls().cuMemUnmap(range.base(), unit_.count));
  EXPECT_OK(calls().cuMemMap(range.base(), unit_.count, 0, one.handle(), 0));
  EXPECT_OK(calls().cuMemUnmap(range.base(), unit_.count));
}

TEST_F(Range, UnmapsSeveralWholeMappingsAtOnce) {
  in_process([this] {
    const Row row(4, unit_);
    EXPECT_OK(calls().cuMemUnmap(row.at(1), 2 * row.size));
    EXPECT_TRUE((fill(row.at(0), {row.size}, 1), holds(row.at(0), {row.size}, 1))) << "the first stays";
    EXPECT_OK(calls().cuMemUnmap(row.at(0), row.size));
    EXPECT_OK(calls().cuMemUnmap(row.at(3), row.size));
  });
  expect_used(0);
}

TEST_IN_PROCESS(Range, UnmapsNoPartOfAMapping) {
  const Row row(2, unit_);
  EXPECT_REFUSED(calls().cuMemUnmap(row.at(0), unit_.count)) << "its first half";
  EXPECT_REFUSED(calls().cuMemUnmap(row.at(0) + unit_.count, unit_.count)) << "its second half";
  EXPECT_REFUSED(calls().cuMemUnmap(row.at(0), row.size + unit_.count)) << "one and a half";
  fill(row.at(0), {2 * row.size}, 7);
  EXPECT_TRUE(holds(row.at(0), {2 * row.size}, 7)) << "both are as before";
  EXPECT_OK(calls().cuMemUnmap(row.at(0), 2 * row.size));
}

TEST_IN_PROCESS(Range, UnmapsWhatIsUnmappedWithoutEffect) {
  const Row row(1, unit_);
  EXPECT_OK(calls().cuMemUnmap(row.at(0), row.size));
  EXPECT_OK(calls().cuMemUnmap(row.at(0), row.size));
}

TEST_IN_PROCESS(Range, GivesAccessToSeveralWholeMappingsAtOnce) {
  const Row row(3, unit_);
  EXPECT_OK(set_access(row.at(1), 2 * row.size));
  EXPECT_OK(set_access(row.at(0), row.size));
  EXPECT_OK(calls().cuMemUnmap(row.at(0), 3 * row.size));
}

TEST_IN_PROCESS(Range, GivesNoAccessToWhatIsNotMapped) {
  const cuda::Reservation range = reserve({2 * unit_.count});
  EXPECT_REFUSED(set_access(range.base(), unit_.count));
  const cuda::Allocation one = allocate(unit_);
  ASSERT_OK(calls().cuMemMap(range.base(), unit_.count, 0, one.handle(), 0));
  EXPECT_REFUSED(set_access(range.base(), 2 * unit_.count)) << "the second half is empty";
  EXPECT_OK(set_access(range.base(), unit_.count));
  EXPECT_OK(calls().cuMemUnmap(range.base(), unit_.count));
}

TEST_IN_PROCESS(Range, GivesNoAccessToPartOfAMapping) {
  const Row row(2, unit_);
  EXPECT_REFUSED(set_access(row.at(0), unit_.count));
  EXPECT_REFUSED(set_access(row.at(0), row.size + unit_.count));
  EXPECT_OK(calls().cuMemUnmap(row.at(0), 2 * row.size));
}

}  // namespace
}  // namespace gpumem::contract
