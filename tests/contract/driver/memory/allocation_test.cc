// Physical memory: made, passed between processes, and refused.
#include <fcntl.h>

#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

using Allocation = DriverTest;

void expect_refused(const Result<cuda::Allocation>& result, Code code) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
}

TEST_F(Allocation, IsChargedToTheDevice) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate({3 * block_.count});
    EXPECT_EQ(one.size().count, 3 * block_.count);
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(3 * block_.count);
  process.signal_and_join();
  expect_used(0);
}

TEST_F(Allocation, CarriesItsContentToAnotherProcess) {
  Process writer([this](Channel& channel) {
    const cuda::Allocation one = allocate(unit_);
    const Mapped mapped = map(one);
    fill(mapped.range.base(), unit_, 0x5a);
    channel.send(exported(one).get());
    channel.await();
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 0xa5)) << "what the other wrote";
  });
  const UniqueFd descriptor = writer.channel().receive();
  in_process([&] {
    const Mapped mapped = map(import(descriptor, unit_));
    EXPECT_TRUE(holds(mapped.range.base(), unit_, 0x5a));
    fill(mapped.range.base(), unit_, 0xa5);
  });
  writer.signal_and_join();
}

TEST_F(Allocation, ReadsAsZeroAtFirst) {
  for (int round = 0; round < 3; ++round) {
    in_process([this] {
      const Bytes size{8 * unit_.count};
      const Mapped mapped = map(allocate(size));
      EXPECT_TRUE(holds(mapped.range.base(), size, 0));
      fill(mapped.range.base(), size, 0xff);
    });
    expect_used(0);
  }
}

TEST_IN_PROCESS(Allocation, FreedAndMadeAgainInTheSameProcessReadsAsZero) {
  const Bytes size{8 * unit_.count};
  for (int round = 0; round < 3; ++round) {
    const Mapped mapped = map(allocate(size));
    EXPECT_TRUE(holds(mapped.range.base(), size, 0)) << "round " << round;
    fill(mapped.range.base(), size, 0xee);
  }
}

TEST_F(Allocation, OfMoreThanTheDeviceHasIsResourceExhausted) {
  in_process([] {
    const Bytes unit = device().granularity;
    const Bytes too_much = device().total.rounded_down(unit) + unit;
    expect_refused(cuda::Allocation::create(driver(), device().ordinal, too_much), Code::kResourceExhausted);
  });
  expect_used(0);
}

TEST_F(Allocation, OfWhatOthersHaveIsResourceExhaustedUntilTheyLetGo) {
  const Bytes rest{4 * unit_.count + 16 * slack_.count};
  const Bytes most = nvml().memory(uuid_)->free.minus(rest).rounded_down(unit_);
  Process holder([&](Channel& channel) {
    const cuda::Allocation one = allocate(most);
    channel.signal_and_await();
  });
  holder.channel().await();
  const Bytes more{2 * rest.count};
  in_process([&] {
    expect_refused(cuda::Allocation::create(driver(), device().ordinal, more), Code::kResourceExhausted);
  });
  holder.kill();
  expect_used(0);
  in_process([&] { allocate(more); });
}

TEST_IN_PROCESS(Allocation, OfAnImpossibleSizeIsRefused) {
  for (const Bytes size : {Bytes{}, Bytes{1}, Bytes{unit_.count + 1}}) {
    expect_refused(cuda::Allocation::create(driver(), device().ordinal, size), Code::kInvalidArgument);
  }
  for (const std::uint64_t size : {std::uint64_t{1} << 62, ~std::uint64_t{0} - unit_.count + 1}) {
    EXPECT_FALSE(cuda::Allocation::create(driver(), device().ordinal, {size})) << size;
  }
}

TEST_IN_PROCESS(Allocation, OnAnUnknownDeviceIsRefused) {
  EXPECT_FALSE(cuda::Allocation::create(driver(), 1000, unit_));
  EXPECT_FALSE(cuda::Allocation::create(driver(), -1, unit_));
}

TEST_IN_PROCESS(Allocation, LeavesTheImportedDescriptorWithTheCaller) {
  const UniqueFd descriptor = exported(allocate(unit_));
  import(descriptor, unit_);
  import(descriptor, unit_);
  EXPECT_GE(::fcntl(descriptor.get(), F_GETFD), 0);
}

}  // namespace
}  // namespace gpumem::contract
