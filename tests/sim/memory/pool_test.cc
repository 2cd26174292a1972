// Memory pools within one process: what they are charged, what they keep, how they end.
#include <vector>

#include "tests/sim/memory/pool_support.h"

namespace gpumem::sim::test {
namespace {

using Pools = SimTest;

TEST_IN_CONTEXT(Pools, SmallAllocationsShareChunksOf2MiB) {
  const CUmemoryPool pool = default_pool();
  std::vector<CUdeviceptr> all(10'000);
  for (CUdeviceptr& one : all) ASSERT_CU(cuMemAllocAsync(&one, 1000, nullptr));
  EXPECT_EQ(used_in(pool), 10'000 * 1024U);
  EXPECT_EQ(reserved(pool), 10 * kMiB);
  EXPECT_EQ(used(), kContext + 10 * kMiB);
  for (const CUdeviceptr one : all) EXPECT_CU(cuMemFreeAsync(one, nullptr));
  EXPECT_EQ(used_in(pool), 0U);
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_EQ(used(), kContext);
}

TEST_IN_CONTEXT(Pools, MaximumSizeIsOfWhatIsReserved) {
  CUmemPoolProps wanted = pool_properties();
  wanted.maxSize = 3 * kMiB;  // counts as 4
  const CUmemoryPool pool = create_pool(wanted);
  CUdeviceptr memory = allocate(pool, 2 * kPage, nullptr), more = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&more, 1, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuMemFree(memory));
  memory = allocate(pool, 1, nullptr);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&more, 2 * kPage, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuMemFree(memory));
  EXPECT_CU(cuMemAllocFromPoolAsync(&more, 2 * kPage, pool, nullptr));
}

TEST_IN_CONTEXT(Pools, IdlePoolMemoryIsReleasedBeforeOutOfMemory) {
  const CUmemoryPool pool = default_pool();
  keep_all(pool);
  EXPECT_CU(cuMemFree(allocate(pool, 40 * kMiB, nullptr)));
  EXPECT_EQ(reserved(pool), 40 * kMiB);
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAlloc(&memory, 70 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(cuMemAlloc(&memory, 40 * kMiB));
  EXPECT_EQ(reserved(pool), 0U);
  EXPECT_EQ(cuMemAllocAsync(&memory, 40 * kMiB, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocAsync(&memory, ~std::size_t{0}, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(cuMemAllocAsync(&memory, 20 * kMiB, nullptr));
}

TEST_IN_CONTEXT(Pools, DestroyedPoolEndsWithAFreeThatIsStillAhead) {
  const CUmemoryPool pool = create_pool();
  const CUstream stream = stream_apart();
  const CUdeviceptr memory = allocate(pool, kPage, stream);
  Barrier barrier;
  barrier.put_in(stream);
  EXPECT_CU(cuMemFreeAsync(memory, stream));
  EXPECT_CU(cuMemPoolDestroy(pool));
  EXPECT_EQ(used(), kContext + kPage);
  barrier.open();
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(used(), kContext);
}

TEST_IN_PROCESS(Pools, PoolMemoryOutlivesContexts) {
  ASSERT_CU(cuInit(0));
  const CUmemoryPool pool = create_pool();  // needs no context
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&memory, 1, pool, nullptr), CUDA_ERROR_INVALID_CONTEXT);
  enter_primary();
  memory = allocate(pool, 1, nullptr);
  ASSERT_CU(cuDevicePrimaryCtxReset(0));
  EXPECT_EQ(used(), kPage);
  EXPECT_CU(cuMemFree(memory));
  EXPECT_CU(cuMemPoolDestroy(pool));
  EXPECT_EQ(used(), 0U);
}

#if CUDA_VERSION >= 13000
TEST_IN_CONTEXT(Pools, HostPoolsCostTheDeviceNothing) {
  CUmemPoolProps wanted = pool_properties();
  wanted.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  const CUmemoryPool pool = create_pool(wanted);
  const CUdeviceptr memory = allocate(pool, kPage, nullptr);
  *bytes_at(memory) = 3;
  unsigned type = 0;
  EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(used(), kContext);
  EXPECT_EQ(reserved(pool), kPage);
  EXPECT_CU(cuMemFreeAsync(memory, nullptr));
  wanted.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool shared = nullptr;
  EXPECT_EQ(cuMemPoolCreate(&shared, &wanted), CUDA_ERROR_INVALID_VALUE);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
