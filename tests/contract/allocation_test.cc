// Physical memory: made, passed between processes, and refused.
#include <fcntl.h>
#include <unistd.h>

#include "tests/contract/fixture.h"

namespace gpumem::contract {
namespace {

using Allocation = DriverTest;

void expect_refused(const Result<cuda::Allocation>& result, Code code) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
}

TEST_F(Allocation, IsChargedToTheDeviceToTheByte) {
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate({3 * unit_.count});
    EXPECT_EQ(one.size().count, 3 * unit_.count);
    channel.signal();
    channel.await();
  });
  process.channel().await();
  expect_used(3 * unit_.count);
  process.channel().signal();
  process.join();
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
  writer.channel().signal();
  writer.join();
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

TEST_F(Allocation, OfMoreThanTheDeviceHasIsResourceExhausted) {
  in_process([] {
    const Bytes too_much = device().total + device().granularity;
    expect_refused(cuda::Allocation::create(driver(), device().ordinal, too_much), Code::kResourceExhausted);
  });
  expect_used(0);
}

TEST_F(Allocation, OfWhatOthersHaveIsResourceExhaustedUntilTheyLetGo) {
  Process holder([this](Channel& channel) {
    const cuda::Allocation most = allocate(
        device().total.minus({4 * unit_.count}).rounded_down(unit_).minus(Bytes{nvml().memory(uuid_)->used}));
    channel.signal();
    channel.await();
  });
  holder.channel().await();
  in_process([this] {
    expect_refused(cuda::Allocation::create(driver(), device().ordinal, {8 * unit_.count}),
                   Code::kResourceExhausted);
  });
  holder.kill();
  expect_used(0);
  in_process([this] { allocate({8 * unit_.count}); });
}

TEST_F(Allocation, OfAnImpossibleSizeIsRefused) {
  in_process([this] {
    for (const Bytes size : {Bytes{}, Bytes{1}, Bytes{unit_.count + 1}}) {
      expect_refused(cuda::Allocation::create(driver(), device().ordinal, size), Code::kInvalidArgument);
    }
  });
}

TEST_F(Allocation, OnAnUnknownDeviceIsRefused) {
  in_process([this] {
    EXPECT_FALSE(cuda::Allocation::create(driver(), 1000, unit_));
    EXPECT_FALSE(cuda::Allocation::create(driver(), -1, unit_));
  });
}

TEST_F(Allocation, IsNotImportedFromOtherDescriptors) {
  in_process([this] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const UniqueFd reading(ends[0]), writing(ends[1]), nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int descriptor : {-1, 9999, reading.get(), nothing.get()}) {
      expect_refused(cuda::Allocation::import(driver(), descriptor, unit_), Code::kInvalidArgument);
    }
  });
}

TEST_F(Allocation, LeavesTheImportedDescriptorWithTheCaller) {
  in_process([this] {
    const UniqueFd descriptor = exported(allocate(unit_));
    import(descriptor, unit_);
    import(descriptor, unit_);
    EXPECT_GE(::fcntl(descriptor.get(), F_GETFD), 0);
  });
}

}  // namespace
}  // namespace gpumem::contract
