// Forms of the calls that older programs use, and those for the per-thread default stream: what each does is
// what the newest does.
#include <functional>

#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using FormsTest = ShimMemory;

void make_current(CUcontext context) {
  EXPECT_CU(real<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(context));
}

SCENE_TEST(FormsTest, ContextsTakeTheirBlocksAlongHoweverTheyEnd) {
  const CUcontext primary = start();
  CUcontext context = nullptr;
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuCtxCreate(&context, 0, 0));
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
  EXPECT_CU(calls::cuCtxDestroy(context));
  make_current(primary);
  EXPECT_EQ(free_memory(), kPool);
  for (const auto& end : {calls::cuDevicePrimaryCtxRelease, calls::cuDevicePrimaryCtxReset}) {
    ASSERT_CU(calls::cuMemAlloc_v2(&at, 32 * kMiB));
    EXPECT_CU(end(0));
    start();
    EXPECT_EQ(free_memory(), kPool);
  }
}

/// A block that is freed between both is in use until the capture has ended.
void expect_capture(const std::function<CUresult()>& begin, const std::function<CUresult()>& end) {
  CUdeviceptr at = 0, next = 0;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  ASSERT_CU(begin());
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(free_memory(), kPool - 8 * kMiB) << "its work may go on";
  EXPECT_CU(end());
  ASSERT_CU(calls::cuMemAlloc_v2(&next, 2 * kMiB));
  EXPECT_EQ(free_memory(), kPool - 2 * kMiB);
  EXPECT_CU(calls::cuMemFree_v2(next));
}

SCENE_TEST(FormsTest, CapturesAreKnownHoweverTheyBegin) {
  start();
  const CUstream stream = new_stream();
  constexpr auto kMode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUgraph graph = nullptr;
  const auto end = [&] { return calls::cuStreamEndCapture(stream, &graph); };
  const auto end_own = [&] { return calls::cuStreamEndCapture_ptsz(nullptr, &graph); };
  expect_capture([&] { return calls::cuStreamBeginCapture_v2(stream, kMode); }, end);
  expect_capture([] { return calls::cuStreamBeginCapture_v2_ptsz(nullptr, kMode); }, end_own);
#if CUDA_VERSION >= 12030
  CUgraph into = nullptr;
  ASSERT_CU(real<decltype(&::cuGraphCreate)>("cuGraphCreate")(&into, 0));
  expect_capture([&] { return calls::cuStreamBeginCaptureToGraph(stream, into, nullptr, nullptr, 0, kMode); },
                 end);
  expect_capture(
      [&] { return calls::cuStreamBeginCaptureToGraph_ptsz(nullptr, into, nullptr, nullptr, 0, kMode); },
      end_own);
#endif
}

// Their mode is that of the thread, which forbids more to it.
SCENE_TEST(FormsTest, FirstFormOfACaptureIsKnown) {
  start();
  const CUstream stream = new_stream();
  CUdeviceptr at = 0;
  CUgraph graph = nullptr;
  ASSERT_CU(calls::cuMemAlloc_v2(&at, 8 * kMiB));
  ASSERT_CU(calls::cuStreamBeginCapture(stream));
  EXPECT_CU(calls::cuMemFree_v2(at));
  EXPECT_EQ(free_memory(), kPool - 8 * kMiB);
  EXPECT_CU(calls::cuStreamEndCapture(stream, &graph));
  ASSERT_CU(calls::cuStreamBeginCapture_ptsz(nullptr));
  EXPECT_CU(calls::cuStreamEndCapture_ptsz(nullptr, &graph));
}

SCENE_TEST(FormsTest, CaptureEndsWithItsStreamHoweverThatEnds) {
  start();
  for (const auto& destroy : {calls::cuStreamDestroy, calls::cuStreamDestroy_v2}) {
    const CUstream stream = new_stream();
    expect_capture([&] { return calls::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED); },
                   [&] { return destroy(stream); });
  }
}

SCENE_TEST(FormsTest, MemoryIsFreedInTheOrderOfTheThreadsOwnStream) {
  start();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync_ptsz(
      &at, 8 * kMiB,
      [] {
        CUmemoryPool pool = nullptr;
        EXPECT_CU(real<decltype(&::cuDeviceGetDefaultMemPool)>("cuDeviceGetDefaultMemPool")(&pool, 0));
        return pool;
      }(),
      nullptr));
  EXPECT_EQ(free_memory(), kPool - 8 * kMiB);
  EXPECT_CU(calls::cuMemFreeAsync_ptsz(at, nullptr));
  EXPECT_EQ(free_memory(), kPool);
  EXPECT_EQ(calls::cuMemFreeAsync_ptsz(at, nullptr), CUDA_ERROR_INVALID_VALUE) << "twice";
}

SCENE_TEST(FormsTest, OwnHandlesAreNotOpenedByEitherForm) {
  start();
  CUdeviceptr at = 0, opened = 0;
  CUipcMemHandle handle{};
  ASSERT_CU(calls::cuMemAlloc_v2(&at, kMiB));
  ASSERT_CU(calls::cuIpcGetMemHandle(&handle, at));
  EXPECT_EQ(calls::cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(calls::cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            CUDA_ERROR_INVALID_CONTEXT);
}

}  // namespace
}  // namespace gpumem::shim::test
