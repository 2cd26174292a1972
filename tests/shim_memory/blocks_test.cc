// cuMemAlloc and what goes with it.
#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/shim_memory/scene.h"

extern "C" bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used,
                                    std::uint64_t* free);

namespace gpumem::shim::test {
namespace {

using BlocksTest = ShimMemory;

SCENE(HoldsMemory) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 64 * kMiB));
  tell_and_await();
  EXPECT_CU(calls::cuMemFree_v2(at));
  tell_and_await();
}

TEST_F(BlocksTest, MemoryIsChargedByTheBrokerAndGivenBack) {
  Actor one = actor("HoldsMemory");
  one.await();
  EXPECT_GE(charged(), 64 * kMiB);
  one.tell_and_await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return charged() < 64 * kMiB; })) << charged();
  one.tell_and_expect_success();
}

SCENE_TEST(BlocksTest, FreeOfNullForeignInteriorAndFreedPointers) {
  start();
  EXPECT_CU(calls::cuMemFree_v2(0));
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 4 * kMiB));
  EXPECT_EQ(calls::cuMemFree_v2(at + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls::cuMemFree_v2(0x1234), CUDA_ERROR_INVALID_VALUE) << "the driver's answer";
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(calls::cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE) << "twice";
  CUdeviceptr foreign = 0;
  ASSERT_CU(real<decltype(&::cuMemAlloc_v2)>("cuMemAlloc_v2")(&foreign, kMiB));
  EXPECT_CU(calls::cuMemFree_v2(foreign)) << "what the driver allocated is the driver's to free";
}

SCENE_TEST(BlocksTest, FreeNeedsNoCurrentContext) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 4 * kMiB));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(nullptr));
  EXPECT_CU(calls::cuMemFree_v2(at));
}

SCENE(Limited) {
  start();
  std::size_t free = 0, total = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_EQ(free, 64 * kMiB);
  EXPECT_CU(calls::cuMemGetInfo_v2(nullptr, &total));
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, nullptr));
  EXPECT_CU(calls::cuMemGetInfo_v2(nullptr, nullptr));
  EXPECT_CU(calls::cuDeviceTotalMem_v2(&total, 0));
  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_EQ(calls::cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&one, 40 * kMiB));
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(free, 24 * kMiB);
  EXPECT_EQ(total, 64 * kMiB);
  EXPECT_EQ(calls::cuMemAlloc_v2(&two, 25 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAlloc_v2(&two, 24 * kMiB)) << "all of what is free";
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(free, 0U);
  EXPECT_CU(calls::cuMemFree_v2(one));
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, &total));
  EXPECT_EQ(free, 40 * kMiB);
}

TEST_F(BlocksTest, LimitIsTheTotalAndRequestsBeyondItFailAtOnce) {
  // A wait would pass the test's own time limit.
  const std::string said = expect("Limited", {{"GPUMEM_LIMIT", "64MiB"}, {"GPUMEM_WAIT", "10h"}});
  EXPECT_NE(said.find("cuMemAlloc of 25MiB is refused"), std::string::npos) << said;
  EXPECT_NE(said.find("limit of 64MiB"), std::string::npos) << said;
}

SCENE(LooksAtFigures) {
  start();
  std::size_t before = 0, after = 0, total = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&before, &total));
  EXPECT_EQ(total, kPool) << "the tenant's limit";
  tell_and_await();
  EXPECT_CU(calls::cuMemGetInfo_v2(&after, &total));
  EXPECT_EQ(after, before);
}

TEST_F(BlocksTest, FreeDoesNotMoveWithNeighbours) {
  Actor one = actor("LooksAtFigures");
  one.await();
  Actor other = actor("HoldsMemory");
  other.await();
  one.tell_and_expect_success();
}

SCENE_TEST(BlocksTest, PitchIsAMultipleOf512AndEveryRowHasIt) {
  start();
  CUdeviceptr at = 0;
  std::size_t pitch = 0, size = 0;
  ASSERT_CU(calls::cuMemAllocPitch_v2(&at, &pitch, 700, 10, 4));
  EXPECT_EQ(pitch, 1024U);
  EXPECT_CU(calls::cuMemGetAddressRange_v2(nullptr, &size, at));
  EXPECT_EQ(size, 10'240U);
  EXPECT_EQ(calls::cuMemAllocPitch_v2(&at, &pitch, 700, 10, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls::cuMemAllocPitch_v2(&at, nullptr, 700, 10, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls::cuMemAllocPitch_v2(&at, &pitch, ~std::size_t{0}, 2, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls::cuMemAllocPitch_v2(&at, &pitch, 700, 0, 4), CUDA_ERROR_INVALID_VALUE);
}

SCENE_TEST(BlocksTest, AddressRangeIsTheBlockAsItWasAskedFor) {
  start();
  CUdeviceptr at = 0, base = 0;
  std::size_t size = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 5'000'001));
  EXPECT_CU(calls::cuMemGetAddressRange_v2(&base, &size, at + 5'000'000));
  EXPECT_EQ(base, at);
  EXPECT_EQ(size, 5'000'001U);
  EXPECT_CU(calls::cuMemGetAddressRange_v2(nullptr, nullptr, at));
  EXPECT_EQ(calls::cuMemGetAddressRange_v2(&base, &size, at + 5'000'001), CUDA_ERROR_NOT_FOUND);
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(calls::cuMemGetAddressRange_v2(&base, &size, at), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr foreign = 0;
  ASSERT_CU(real<decltype(&::cuMemAlloc_v2)>("cuMemAlloc_v2")(&foreign, kMiB));
  EXPECT_CU(calls::cuMemGetAddressRange_v2(&base, &size, foreign));
  EXPECT_EQ(base, foreign);
}

/// Work that a stream does when the test lets it.
void CUDA_CB wait_for_release(void* released) {
  while (!static_cast<std::atomic<bool>*>(released)->load()) std::this_thread::yield();
}

SCENE_TEST(BlocksTest, FreeWaitsForWorkOnAnyStream) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 4 * kMiB));
  CUstream stream = nullptr;
  ASSERT_CU(real<decltype(&::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  static std::atomic<bool> released{false};
  static std::atomic<bool> freed{false};
  using Launch = CUresult (*)(CUstream, CUhostFn, void*);
  ASSERT_CU(real<Launch>("cuLaunchHostFunc")(stream, wait_for_release, &released));
  std::thread freeing([&] {
    EXPECT_CU(calls::cuMemFree_v2(at));
    EXPECT_TRUE(released.load()) << "the block was freed under its work";
    freed = true;
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(freed.load());
  released = true;
  freeing.join();
}

SCENE_TEST(BlocksTest, ManyThreadsNeverPassTheLimitAndLoseNothing) {
  const CUcontext context = start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([context, i] {
      EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
      for (std::size_t step = 1; step <= 200; ++step) {
        CUdeviceptr at = 0;
        ASSERT_CU(calls::cuMemAlloc_v2(&at, step * 4096));
        byte_at(at) = static_cast<unsigned char>(i);
        EXPECT_EQ(byte_at(at), i);
        EXPECT_CU(calls::cuMemFree_v2(at));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::size_t free = 0;
  EXPECT_CU(calls::cuMemGetInfo_v2(&free, nullptr));
  EXPECT_EQ(free, kPool);
}

/// The slice that NVML shows for the first device. A total of zero: it shows the device itself.
struct Shown {
  Shown() {
    CUuuid uuid{};
    EXPECT_CU(real<decltype(&::cuInit)>("cuInit")(0));
    EXPECT_CU(real<decltype(&::cuDeviceGetUuid)>("cuDeviceGetUuid")(&uuid, 0));
    unsigned char named[16];
    std::memcpy(named, uuid.bytes, sizeof named);
    const bool is_slice = gpumem_shim_figures(named, &total, &used, &free);
    EXPECT_EQ(is_slice, total != 0);
    named[3] ^= 1;
    EXPECT_FALSE(gpumem_shim_figures(named, &no_matter, &no_matter, &no_matter));
  }
  std::uint64_t total = 0, used = 0, free = 0, no_matter = 0;
};

void expect_slice_in_nvml() {
  EXPECT_EQ(Shown().total, kPool);
  EXPECT_EQ(Shown().used, 0U);
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 6 * kMiB));
  EXPECT_EQ(Shown().total, kPool);
  EXPECT_EQ(Shown().used, 6 * kMiB);
  EXPECT_EQ(Shown().free, kPool - 6 * kMiB);
}

SCENE_TEST(BlocksTest, NvmlShowsTheSliceOfAProcessThatHasStartedTheDriver) {
  start();
  expect_slice_in_nvml();
}

SCENE(AsksNvmlFirst) { expect_slice_in_nvml(); }

TEST_F(BlocksTest, NvmlShowsTheSliceOfAProcessWithALimitFromItsStart) {
  for (const char* name : {"GPUMEM_LIMIT", "KUBERNETES_SERVICE_HOST"})
    expect("AsksNvmlFirst", {{name, std::to_string(kPool)}});
}

SCENE(AsksNvmlBeforeItStartsTheDriver) {
  EXPECT_EQ(Shown().total, 0U);
  tell_and_await();
  start();
  EXPECT_EQ(Shown().total, 0U) << "a program sizes itself by the total, which must not change (vLLM)";
}

TEST_F(BlocksTest, NvmlShowsTheDeviceToAProcessThatAsksFirstAndOpensNoSession) {
  Actor monitor = actor("AsksNvmlBeforeItStartsTheDriver");
  monitor.await();
  EXPECT_TRUE(broker_.sessions().empty());
  monitor.tell_and_expect_success();
}

}  // namespace
}  // namespace gpumem::shim::test
