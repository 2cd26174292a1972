// The management library: figures of the device without a context.
#include <algorithm>

#include "tests/contract/driver/fixture.h"
#include "tests/support/eventually.h"

namespace gpumem::contract {
namespace {

using Nvml = DriverTest;

TEST_F(Nvml, FiguresAddUp) {
  const auto memory = nvml().memory(uuid_);
  ASSERT_TRUE(memory);
  EXPECT_LE(memory->used.count + memory->free.count, memory->total.count);
  EXPECT_FALSE(memory->total.is_zero());
}

TEST_F(Nvml, FreeGoesDownByWhatIsAllocated) {
  const std::uint64_t before = nvml().memory(uuid_)->free.count;
  Process process([this](Channel& channel) {
    const cuda::Allocation one = allocate({5 * block_.count});
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used(5 * block_.count);
  EXPECT_NEAR(static_cast<double>(before - nvml().memory(uuid_)->free.count),
              static_cast<double>(5 * block_.count), static_cast<double>(slack_.count));
}

TEST_F(Nvml, ContextCostsMemoryAndNamesItsProcess) {
  Process process([](Channel& channel) {
    auto context = cuda::CurrentContext::enter(driver(), device().ordinal);
    ASSERT_TRUE(context) << context.error().message;
    channel.signal_and_await();
  });
  process.channel().await();
  expect_used_at_least(slack_.count + 1);
  const auto processes = nvml().processes(uuid_);
  ASSERT_TRUE(processes) << processes.error().message;
  EXPECT_TRUE(
      std::ranges::count(*processes, static_cast<unsigned>(process.pid()), &cuda::ProcessMemory::pid) == 1);
  process.signal_and_join();
  expect_used(0);
}

TEST_F(Nvml, ListsAProcessOnceWithWhatItHolds) {
  Process process([this](Channel& channel) {
    auto context = cuda::CurrentContext::enter(driver(), device().ordinal);
    ASSERT_TRUE(context) << context.error().message;
    const cuda::Allocation one = allocate({5 * block_.count});
    channel.signal_and_await();
  });
  process.channel().await();
  std::vector<Bytes> figures;
  // A driver may not tell; if it does, the memory is in it, at the latest a moment later.
  EXPECT_TRUE(test::eventually([&] {
    figures.clear();
    const auto processes = nvml().processes(uuid_);
    for (const cuda::ProcessMemory& one : processes ? *processes : std::vector<cuda::ProcessMemory>()) {
      if (one.pid == static_cast<unsigned>(process.pid())) figures.push_back(one.used);
    }
    return figures.size() == 1 && (figures[0].is_zero() || figures[0].count >= 5 * block_.count);
  })) << figures.size()
      << " figures, the first is " << (figures.empty() ? 0 : figures[0].count);
  process.signal_and_join();
}

TEST_F(Nvml, DoesNotKnowAStrangersDevice) {
  const auto unknown = nvml().memory(cuda::DeviceUuid{});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kNotFound) << unknown.error().message;
}

TEST_F(Nvml, TellsTheDriversVersion) {
  const auto version = nvml().driver_version();
  ASSERT_TRUE(version);
  EXPECT_FALSE(version->empty());
}

TEST_F(Nvml, IsNotFoundWhereThereIsNone) {
  const auto none = cuda::Nvml::open("/nowhere");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace gpumem::contract
