// Contexts take what was allocated in them along.
#include "tests/shim_memory/scene.h"

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

}  // namespace
}  // namespace gpumem::shim::test
