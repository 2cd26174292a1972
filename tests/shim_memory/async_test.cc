// Memory in the order of streams, and pools.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/shim_memory/scene.h"
#include "tests/support/host_gate.h"

namespace gpumem::shim::test {
namespace {

using AsyncTest = ShimMemory;

CUmemoryPool default_pool() {
  CUmemoryPool pool = nullptr;
  EXPECT_CU(real<decltype(&::cuDeviceGetDefaultMemPool)>("cuDeviceGetDefaultMemPool")(&pool, 0));
  return pool;
}
/// Of a pool of device 0.
CUmemPoolProps pool_properties() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}
CUmemoryPool new_pool(const CUmemPoolProps& properties = pool_properties()) {
  CUmemoryPool pool = nullptr;
  EXPECT_CU(calls::cuMemPoolCreate(&pool, &properties));
  return pool;
}
std::uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
  cuuint64_t value = 0;
  EXPECT_CU(calls::cuMemPoolGetAttribute(pool, which, &value));
  return value;
}

SCENE(HoldsAsyncMemory) {
  start();
  const CUstream stream = new_stream();
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&one, 48 * kMiB, stream));
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&two, 48 * kMiB, default_pool(), stream));
  byte_at(two) = 1;
  tell_and_await();
}

TEST_F(AsyncTest, MemoryIsChargedByTheBroker) {
  Actor one = actor("HoldsAsyncMemory");
  one.await();
  EXPECT_GE(charged(), 96 * kMiB);
  one.tell_and_expect_success();
}

SCENE(AsyncBeyondTheLimit) {
  start();
  const CUstream stream = new_stream();
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAllocAsync(&at, 65 * kMiB, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&at, 65 * kMiB, default_pool(), stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuMemAllocAsync_ptsz(&at, 65 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAllocAsync(&at, 64 * kMiB, stream)) << "all of it";
}

TEST_F(AsyncTest, LimitHoldsForEveryWayToAskAndTheErrorIsTheDrivers) {
  expect("AsyncBeyondTheLimit", {{"GPUMEM_LIMIT", "64MiB"}, {"GPUMEM_WAIT", "10h"}});
}

void CUDA_CB hold_stream(void* released) {
  while (!static_cast<std::atomic<bool>*>(released)->load()) std::this_thread::yield();
}
void CUDA_CB look_at(void* at) {
  EXPECT_EQ(*static_cast<volatile unsigned char*>(at), 7) << "somebody else had the memory meanwhile";
}
using Launch = CUresult (*)(CUstream, CUhostFn, void*);

/// `ends`  the stream of the work is destroyed as soon as it has freed the memory.
void free_under_work(bool ends) {
  start();
  const CUstream busy = new_stream();
  const CUstream other = new_stream();
  static std::atomic<bool> released{false};
  CUdeviceptr first = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&first, kPool, busy));
  byte_at(first) = 7;
  ASSERT_CU(real<Launch>("cuLaunchHostFunc")(busy, hold_stream, &released));
  ASSERT_CU(real<Launch>("cuLaunchHostFunc")(busy, look_at, reinterpret_cast<void*>(first)));
  EXPECT_CU(calls::cuMemFreeAsync(first, busy));
  if (ends) {
    EXPECT_CU(calls::cuStreamDestroy_v2(busy));
  }
  // The only memory there is is had behind that work.
  CUdeviceptr next = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&next, kPool, other));
  ASSERT_CU(real<decltype(&::cuMemsetD8Async)>("cuMemsetD8Async")(next, 9, kPool, other));
  released = true;
  EXPECT_CU(real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize")());
  EXPECT_EQ(byte_at(next), 9);
}
SCENE_TEST(AsyncTest, FreedMemoryServesNoOtherStreamBeforeItsWorkIsDone) { free_under_work(false); }
SCENE_TEST(AsyncTest, FreedMemoryOfADestroyedStreamServesNoOtherBeforeItsWorkIsDone) {
  free_under_work(true);
}

SCENE_TEST(AsyncTest, PlainMemoryIsFreeOfEarlierWorkOnAnyStream) {
  start();
  const CUstream busy = new_stream();
  static std::atomic<bool> released{false};
  CUdeviceptr first = 0, next = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&first, kPool, busy));
  byte_at(first) = 7;
  ASSERT_CU(real<Launch>("cuLaunchHostFunc")(busy, hold_stream, &released));
  ASSERT_CU(real<Launch>("cuLaunchHostFunc")(busy, look_at, reinterpret_cast<void*>(first)));
  EXPECT_CU(calls::cuMemFreeAsync(first, busy));
  std::thread release([] {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    released = true;
  });
  ASSERT_CU(calls::cuMemAlloc_v2(&next, kPool));
  EXPECT_TRUE(released.load()) << "the only memory there is was still in use";
  byte_at(next) = 9;
  release.join();
}

SCENE_TEST(AsyncTest, PoolsHaveTheirOwnSizeAndFigures) {
  start();
  const CUstream stream = new_stream();
  CUmemPoolProps properties = pool_properties();
  properties.maxSize = 32 * kMiB;
  const CUmemoryPool pool = new_pool(properties);
  CUdeviceptr at = 0, other = 0;
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&at, 33 * kMiB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&at, 20 * kMiB + 1, pool, stream));
  ASSERT_CU(calls::cuMemAllocAsync(&other, 2 * kMiB, stream));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 20 * kMiB + 1);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 22 * kMiB);
  EXPECT_EQ(attribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * kMiB);
  EXPECT_CU(calls::cuMemFreeAsync(at, stream));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0U);
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 20 * kMiB + 1);
  cuuint64_t zero = 0;
  EXPECT_CU(calls::cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0U);
  cuuint64_t threshold = ~cuuint64_t{0};
  EXPECT_CU(calls::cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), threshold);
  int reuse = -1;
  EXPECT_CU(calls::cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
  EXPECT_EQ(reuse, 1);
  EXPECT_CU(calls::cuMemPoolDestroy(pool));
  EXPECT_NE(calls::cuMemAllocFromPoolAsync(&at, kMiB, pool, stream), CUDA_SUCCESS);
}

SCENE_TEST(AsyncTest, CurrentPoolOfTheDeviceIsTheOneThatServes) {
  start();
  const CUstream stream = new_stream();
  const auto expect_serves = [&](CUmemoryPool pool) {
    for (const CUstream each : {stream, CUstream{nullptr}}) {
      CUdeviceptr at = 0;
      ASSERT_CU(calls::cuMemAllocAsync(&at, 2 * kMiB, each));
      EXPECT_EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 * kMiB);
      EXPECT_CU(calls::cuMemFreeAsync(at, each));
    }
  };
  expect_serves(default_pool());
  const CUmemoryPool pool = new_pool();
  ASSERT_CU(calls::cuDeviceSetMemPool(0, pool));
  expect_serves(pool);
  ASSERT_CU(calls::cuMemPoolDestroy(pool));
  expect_serves(default_pool());
#if CUDA_VERSION >= 13000
  const CUmemoryPool by_location = new_pool();
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASSERT_CU(calls::cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, by_location));
  expect_serves(by_location);
#endif
}

SCENE_TEST(AsyncTest, ArgumentsAreCheckedAsTheDriverDoes) {
  start();
  CUdeviceptr at = 0;
  const auto no_stream = reinterpret_cast<CUstream>(std::uintptr_t{0xdead0});
  EXPECT_NE(calls::cuMemAllocAsync(&at, kMiB, no_stream), CUDA_SUCCESS);
  EXPECT_EQ(calls::cuMemAllocAsync(nullptr, kMiB, nullptr), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(calls::cuMemAllocAsync(&at, kMiB, nullptr));
  EXPECT_NE(calls::cuMemFreeAsync(at, no_stream), CUDA_SUCCESS);
  EXPECT_CU(calls::cuMemFreeAsync(at, nullptr)) << "the failure has not freed it";
  const auto no_pool = reinterpret_cast<CUmemoryPool>(std::uintptr_t{0xdead0});
  EXPECT_NE(calls::cuMemAllocFromPoolAsync(&at, kMiB, no_pool, nullptr), CUDA_SUCCESS);
}

SCENE_TEST(AsyncTest, CapturedAllocationBecomesANodeOfTheGraph) {
  start();
  const CUstream stream = new_stream();
  ASSERT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUdeviceptr at = 0;
  EXPECT_CU(calls::cuMemAllocAsync(&at, 2 * kMiB, stream));
  EXPECT_CU(calls::cuMemFreeAsync(at, stream));
  CUgraph graph = nullptr;
  ASSERT_CU(calls::cuStreamEndCapture(stream, &graph));
  std::size_t nodes = 0;
  EXPECT_CU(real<decltype(&::cuGraphGetNodes)>("cuGraphGetNodes")(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 2U);
  EXPECT_EQ(free_memory(), kPool) << "nothing of the slice";
}

SCENE_TEST(AsyncTest, FreeWhileAGraphIsCapturedWaitsForTheEndOfTheCapture) {
  start();
  const CUstream stream = new_stream();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  ASSERT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(free_memory(), kPool - 8 * kMiB) << "its work may go on";
  CUgraph graph = nullptr;
  ASSERT_CU(calls::cuStreamEndCapture(stream, &graph)) << "the capture is not spoilt";
  EXPECT_EQ(free_memory(), kPool);
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 2 * kMiB));
  EXPECT_EQ(free_memory(), kPool - 2 * kMiB);
}

SCENE_TEST(AsyncTest, MemoryFreedBeforeACaptureServesOtherStreamsDuringIt) {
  start();
  const CUstream stream = new_stream(), other = new_stream();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&at, 200 * kMiB, stream));
  EXPECT_CU(calls::cuMemFreeAsync(at, stream));
  ASSERT_CU(real<CUresult (*)(CUstream)>("cuStreamSynchronize")(stream));
  ASSERT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(calls::cuMemAllocAsync(&at, 200 * kMiB, other));
}

decltype(&::cuCtxSynchronize) real_synchronize = nullptr;
std::atomic<bool> is_synchronizing{false};

CUresult synchronize_late() {
  is_synchronizing.store(true);
  is_synchronizing.notify_all();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return real_synchronize();
}

/// Frees `at` in another thread, which is about to wait for the work of the context when this one goes on.
std::thread free_in_another_thread(CUcontext context, CUdeviceptr at) {
  std::thread other([=] {
    EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
    EXPECT_CU(calls::cuMemFree_v2(at));
  });
  is_synchronizing.wait(false);
  return other;
}

SCENE_TEST(AsyncTest, CaptureIsNotSpoiltByAFreeThatIsAboutToWait) {
  const CUcontext context = start();
  real_synchronize = real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize");
  stand_in("cuCtxSynchronize", reinterpret_cast<void*>(synchronize_late));
  const CUstream stream = new_stream();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  std::thread other = free_in_another_thread(context, at);
  EXPECT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  other.join();
  CUgraph graph = nullptr;
  EXPECT_CU(calls::cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(free_memory(), kPool);
}

// What the free waits for may need what is captured.
SCENE_TEST(AsyncTest, CaptureBeginsWhileAFreeWaitsForWork) {
  const CUcontext context = start();
  real_synchronize = real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize");
  stand_in("cuCtxSynchronize", reinterpret_cast<void*>(synchronize_late));
  const CUstream busy = new_stream();
  const CUstream stream = new_stream();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  gpumem::test::HostGate gate;
  ASSERT_CU(real<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc")(
      busy, gpumem::test::HostGate::wait, gate.argument()));
  std::thread other = free_in_another_thread(context, at);
  EXPECT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  gate.open();
  other.join();
  CUgraph graph = nullptr;
  EXPECT_CU(calls::cuStreamEndCapture(stream, &graph));
}

// As the driver's: what a stream is about to free is still in use.
SCENE_TEST(AsyncTest, TrimmingAPoolDoesNotWaitForWork) {
  start();
  CUstream stream = nullptr;
  ASSERT_CU(real<decltype(&::cuStreamCreate)>("cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&at, 4 * kMiB, stream));
  gpumem::test::HostGate gate;
  ASSERT_CU(real<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc")(
      stream, gpumem::test::HostGate::wait, gate.argument()));
  EXPECT_CU(calls::cuMemFreeAsync(at, stream));
  EXPECT_CU(calls::cuMemPoolTrimTo(default_pool(), 0)) << "it comes back although the gate is closed";
  gate.open();
  EXPECT_CU(real<CUresult (*)(CUstream)>("cuStreamSynchronize")(stream));
}

SCENE(Trims) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&at, 64 * kMiB, nullptr));
  EXPECT_CU(calls::cuMemFreeAsync(at, nullptr));
  EXPECT_CU(real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize")());
  EXPECT_CU(calls::cuMemPoolTrimTo(default_pool(), 0));
  tell_and_await();
}

TEST_F(AsyncTest, TrimGivesIdleMemoryBackToTheBroker) {
  Actor one = actor("Trims");
  one.await();
  EXPECT_TRUE(gpumem::test::eventually([&] { return charged() < 64 * kMiB; })) << charged();
  one.tell_and_expect_success();
}

struct TwoDevices : ShimMemory {
  TwoDevices() : ShimMemory({.simulate = "2x256MiB", .config = "[broker]\nreserve = \"all-but 32MiB\"\n"}) {}
};

CUmemAccess_flags access_of(CUdeviceptr at, int device) {
  unsigned long long flags = 0;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
  EXPECT_CU(real<decltype(&::cuMemGetAccess)>("cuMemGetAccess")(&flags, &location, at));
  return static_cast<CUmemAccess_flags>(flags);
}

SCENE_TEST(TwoDevices, PeerAccessHoldsForBlocksThatAreThereAndThatCome) {
  const CUcontext first = start();
  CUdeviceptr before = 0, after = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&before, 4 * kMiB));
  EXPECT_EQ(access_of(before, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUcontext second = nullptr;
  ASSERT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&second, 1));
  ASSERT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(second));
  EXPECT_CU(calls::cuCtxEnablePeerAccess(first, 0));
  EXPECT_EQ(access_of(before, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(first));
  ASSERT_CU(calls::cuMemAlloc_v2(&after, 100 * kMiB));
  EXPECT_EQ(access_of(after, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(access_of(after, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

SCENE_TEST(TwoDevices, AccessToAPoolHoldsForBlocksThatAreThereAndThatCome) {
  start();
  CUdeviceptr before = 0, after = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&before, 4 * kMiB, nullptr));
  EXPECT_EQ(access_of(before, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_CU(calls::cuMemPoolSetAccess(default_pool(), &access, 1));
  EXPECT_EQ(access_of(before, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_CU(calls::cuMemAllocAsync(&after, 100 * kMiB, nullptr));
  EXPECT_EQ(access_of(after, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

SCENE_TEST(TwoDevices, EachDeviceHasASliceOfItsOwn) {
  start();
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&one, kPool));
  CUcontext second = nullptr;
  ASSERT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&second, 1));
  ASSERT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(second));
  EXPECT_EQ(free_memory(), kPool);
  ASSERT_CU(calls::cuMemAlloc_v2(&two, kPool));
  EXPECT_EQ(free_memory(), 0U);
  EXPECT_CU(calls::cuMemFree_v2(one)) << "from a context of the other device";
}

}  // namespace
}  // namespace gpumem::shim::test
