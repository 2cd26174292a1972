// Contexts take what was allocated in them along.
#include <atomic>
#include <chrono>
#include <thread>

#include "client/shim/figures.h"
#include "tests/shim_memory/scene.h"
#include "tests/support/host_gate.h"

namespace gpumem::shim::test {
namespace {

using ContextsTest = ShimMemory;

SCENE_TEST(ContextsTest, BlocksOfADestroyedContextAreFreeAndOthersStay) {
  const CUcontext primary = start();
  CUdeviceptr kept = 0, gone = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&kept, 2 * kMiB));
  CUcontext context = nullptr;
  ASSERT_CU(real<decltype(&::cuCtxCreate_v2)>("cuCtxCreate_v2")(&context, 0, 0));
  ASSERT_CU(calls::cuMemAlloc_v2(&gone, 32 * kMiB));
  EXPECT_CU(calls::cuCtxDestroy_v2(context));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  EXPECT_EQ(free_memory(), kPool - 2 * kMiB);
  EXPECT_EQ(calls::cuMemFree_v2(gone), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(calls::cuMemFree_v2(kept));
}

// Stands in for a driver that gives the handle of a destroyed context, and the address of its memory, to
// another thread before the call returns.
CUdeviceptr of_first = 0, of_second = 0;
CUresult destroy_and_create_again(CUcontext) {
  EXPECT_CU(real<decltype(&::cuMemFree_v2)>("cuMemFree_v2")(of_first));
  return calls::cuMemAllocManaged(&of_second, 8 * kMiB, CU_MEM_ATTACH_GLOBAL);
}

SCENE_TEST(ContextsTest, ManagedMemoryOfADestroyedContextIsFreeThoughItsNamesAreAnothersAtOnce) {
  start();
  CUcontext context = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(calls::cuMemAllocManaged(&of_first, 8 * kMiB, CU_MEM_ATTACH_GLOBAL));
  stand_in("cuCtxDestroy_v2", reinterpret_cast<void*>(destroy_and_create_again));
  EXPECT_CU(calls::cuCtxDestroy_v2(context));
  ASSERT_EQ(of_first, of_second);
  EXPECT_EQ(free_memory(), kPool - 8 * kMiB);
  EXPECT_CU(calls::cuMemFree_v2(of_second));
  EXPECT_EQ(free_memory(), kPool);
}

SCENE_TEST(ContextsTest, NothingIsAllocatedInADestroyedContextThatIsStillCurrent) {
  start();
  CUcontext context = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&context, 0, 0));
  std::thread([context] { EXPECT_CU(calls::cuCtxDestroy_v2(context)); }).join();
  CUdeviceptr at = 0;
  EXPECT_EQ(calls::cuMemAlloc_v2(&at, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_CU(calls::cuCtxCreate_v2(&context, 0, 0));
  EXPECT_CU(calls::cuMemAlloc_v2(&at, 4096));
}

#if CUDA_VERSION >= 12040
// The simulated driver has no green contexts: another context stands in for one, which retains the primary
// one.
CUresult from_green(CUcontext* context, CUgreenCtx green) {
  *context = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}
CUresult destroy_green(CUgreenCtx green) {
  real<decltype(&::cuDevicePrimaryCtxRelease_v2)>("cuDevicePrimaryCtxRelease_v2")(0);
  return real<decltype(&::cuCtxDestroy_v2)>("cuCtxDestroy_v2")(reinterpret_cast<CUcontext>(green));
}

SCENE_TEST(ContextsTest, BlocksOfAGreenContextEndWithThePrimaryOne) {
  stand_in("cuCtxFromGreenCtx", reinterpret_cast<void*>(from_green));
  stand_in("cuGreenCtxDestroy", reinterpret_cast<void*>(destroy_green));
  for (const bool is_last_use : {false, true}) {
    const CUcontext primary = start();
    CUcontext green = nullptr, again = nullptr;
    ASSERT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&again, 0));
    ASSERT_CU(real<decltype(&::cuCtxCreate_v2)>("cuCtxCreate_v2")(&green, 0, 0));
    CUdeviceptr at = 0, managed = 0;
    ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
    ASSERT_CU(calls::cuMemAllocManaged(&managed, 8 * kMiB, CU_MEM_ATTACH_GLOBAL));
    EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
    if (is_last_use) {
      EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
    }
    EXPECT_CU(calls::cuGreenCtxDestroy(reinterpret_cast<CUgreenCtx>(green)));
    if (!is_last_use) {
      EXPECT_EQ(free_memory(), kPool - 40 * kMiB) << "it may still be in use";
      byte_at(at) = 1;
      EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
    }
    start();
    EXPECT_EQ(free_memory(), kPool);
    EXPECT_EQ(calls::cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
  }
}

SCENE_TEST(ContextsTest, GreenContextThatIsNoneIsAnsweredByTheDriver) {
  start();
  EXPECT_EQ(calls::cuGreenCtxDestroy(nullptr),
            real<decltype(&::cuGreenCtxDestroy)>("cuGreenCtxDestroy")(nullptr));
}
#endif

// Blocks that are freed while graphs are captured wait for the end of all captures.
SCENE_TEST(ContextsTest, CaptureEndsWithItsContext) {
  start();
  CUstream stream = nullptr;
  ASSERT_CU(real<decltype(&::cuStreamCreate)>("cuStreamCreate")(&stream, 0));
  ASSERT_CU(calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(calls::cuDevicePrimaryCtxReset_v2(0));
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(free_memory(), kPool);
}

SCENE_TEST(ContextsTest, CaptureOfAThreadsOwnStreamEndsWithTheThread) {
  const CUcontext primary = start();
  std::thread([primary] {
    ASSERT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
    ASSERT_CU(calls::cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_TRUE(gpumem_shim_captures());
  }).join();
  EXPECT_FALSE(gpumem_shim_captures());
}

SCENE_TEST(ContextsTest, LastOneThatDetachesFreesItsBlocks) {
  const CUcontext primary = start();
  CUcontext context = nullptr, same = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&context, 0, 0));
  ASSERT_CU(real<decltype(&::cuCtxAttach)>("cuCtxAttach")(&same, 0));
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  EXPECT_CU(calls::cuCtxDetach(context));
  EXPECT_EQ(free_memory(), kPool - 32 * kMiB) << "it is still in use";
  EXPECT_CU(calls::cuCtxDetach(context));
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  EXPECT_EQ(free_memory(), kPool);
}

// The allocator means by the default stream that of the first context.
SCENE_TEST(ContextsTest, MemoryFreedInAnotherContextServesWhenItsWorkIsDone) {
  constexpr std::uint64_t kMost = 120 * kMiB;  // more than half of the pool
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 4096));
  CUcontext other = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&other, 0, 0));
  const CUstream stream = new_stream(), next = new_stream();
  struct Case {
    CUstream freed_on;
    CUstream used_on;
    CUresult (*allocate)(CUdeviceptr*, std::size_t, CUstream);
  };
  const auto for_all = [](CUdeviceptr* out, std::size_t size, CUstream) {
    return calls::cuMemAlloc_v2(out, size);
  };
  for (const Case& one : {Case{stream, nullptr, for_all},
                          {stream, nullptr, calls::cuMemAllocAsync},
                          {nullptr, next, calls::cuMemAllocAsync}}) {
    ASSERT_CU(calls::cuMemAllocAsync(&at, kMost, stream));
    gpumem::test::HostGate gate;
    std::atomic<bool> done = false;
    const auto launch = real<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc");
    const auto note = [](void* is_done) { *static_cast<std::atomic<bool>*>(is_done) = true; };
    ASSERT_CU(launch(one.freed_on, gpumem::test::HostGate::wait, gate.argument()));
    ASSERT_CU(launch(one.freed_on, note, &done));
    std::jthread opening([&gate] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.open();
    });
    EXPECT_CU(calls::cuMemFreeAsync(at, one.freed_on));
    ASSERT_CU(one.allocate(&at, kMost, one.used_on));
    if (one.used_on != nullptr) {
      EXPECT_CU(real<CUresult (*)(CUstream)>("cuStreamSynchronize")(one.used_on));
    }
    EXPECT_TRUE(done);
    opening.join();
    EXPECT_CU(calls::cuMemFree_v2(at));
  }
}

SCENE_TEST(ContextsTest, LastReleaseOfThePrimaryContextFreesItsBlocks) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  CUcontext again = nullptr;
  ASSERT_CU(real<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&again, 0));
  EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_EQ(free_memory(), kPool - 32 * kMiB) << "it is still in use";
  EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
  start();
  EXPECT_EQ(free_memory(), kPool);
  EXPECT_EQ(calls::cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
}

SCENE_TEST(ContextsTest, ResetOfThePrimaryContextFreesItsBlocks) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  EXPECT_CU(calls::cuDevicePrimaryCtxReset_v2(0));
  start();
  EXPECT_EQ(free_memory(), kPool);
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB)) << "and the next one serves as well";
  byte_at(at) = 3;
  EXPECT_CU(calls::cuMemFree_v2(at));
}

void have_memory_and_some_of_it_idle() {
  CUdeviceptr kept = 0, idle = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&kept, 32 * kMiB));
  ASSERT_CU(calls::cuMemAlloc_v2(&idle, 32 * kMiB));
  EXPECT_CU(calls::cuMemFree_v2(idle));
  tell_and_await();
}

SCENE(EndsItsContexts) {
  const CUcontext primary = start();
  CUcontext context = nullptr;
  ASSERT_CU(calls::cuCtxCreate_v2(&context, 0, 0));
  have_memory_and_some_of_it_idle();
  EXPECT_CU(calls::cuCtxDestroy_v2(context));
  tell_and_await();
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(primary));
  have_memory_and_some_of_it_idle();
  EXPECT_CU(calls::cuDevicePrimaryCtxRelease_v2(0));
  tell_and_await();
  start();
  have_memory_and_some_of_it_idle();
  EXPECT_CU(calls::cuDevicePrimaryCtxReset_v2(0));
  tell_and_await();
}

TEST_F(ContextsTest, AllMemoryGoesBackAtOnceWithTheContext) {
  Actor one = actor("EndsItsContexts");
  for (const char* how : {"destroyed", "released", "reset"}) {
    one.await();
    EXPECT_GE(broker_.device().active(), 32 * kMiB);
    one.tell_and_await();
    EXPECT_EQ(broker_.device().active(), 0U) << how;
    one.tell();
  }
  EXPECT_TRUE(one.succeeds()) << one.output();
}

}  // namespace
}  // namespace gpumem::shim::test
