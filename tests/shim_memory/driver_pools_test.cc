// Pools that stay the driver's own: they are charged with what the driver reserves for them.
#include "tests/shim_memory/scene.h"

namespace gpumem::shim::test {
namespace {

using DriverPoolsTest = ShimMemory;

void synchronize_all() { EXPECT_CU(real<decltype(&::cuCtxSynchronize)>("cuCtxSynchronize")()); }

/// One that can be passed to other processes, which makes it the driver's.
CUmemoryPool exportable_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemoryPool pool = nullptr;
  EXPECT_CU(calls::cuMemPoolCreate(&pool, &properties));
  return pool;
}
std::uint64_t pool_figure(CUmemoryPool pool, CUmemPool_attribute which) {
  cuuint64_t value = 0;
  EXPECT_CU(calls::cuMemPoolGetAttribute(pool, which, &value));
  return value;
}

SCENE(UsesAnExportablePool) {
  start();
  const CUmemoryPool pool = exportable_pool();
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&one, 5 * kMiB, pool, nullptr));
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 6 * kMiB);
  EXPECT_EQ(free_memory(), 10 * kMiB) << "what the driver reserves is charged";
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&two, 12 * kMiB, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync_ptsz(&two, 12 * kMiB, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 5 * kMiB) << "the driver was not asked";
  EXPECT_EQ(free_memory(), 10 * kMiB);
  tell_and_await();
  EXPECT_CU(calls::cuMemFreeAsync(one, nullptr));
  synchronize_all();
  EXPECT_EQ(free_memory(), 10 * kMiB) << "such a pool keeps what it has";
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&one, 5 * kMiB, pool, nullptr));
  EXPECT_EQ(free_memory(), 10 * kMiB) << "and hands it out again";
  EXPECT_CU(calls::cuMemFree_v2(one));
  EXPECT_CU(calls::cuMemPoolDestroy(pool));
  EXPECT_EQ(free_memory(), 16 * kMiB);
  tell_and_await();
}

TEST_F(DriverPoolsTest, PoolsThatCanBePassedOnAreChargedWithWhatTheDriverReserves) {
  expect_told_of_outside("UsesAnExportablePool", 6 * kMiB,
                         {{"GPUMEM_LIMIT", "16MiB"}, {"GPUMEM_WAIT", "10h"}});
}

SCENE(FillsAPoolWithOddBlocks) {
  start();
  const CUmemoryPool pool = exportable_pool();
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr at = 0;
  while (calls::cuMemAllocFromPoolAsync(&at, 2 * kMiB + 1, pool, nullptr) == CUDA_SUCCESS)
    blocks.push_back(at);
  EXPECT_EQ(blocks.size(), 4U) << "each takes 4 MiB of the driver";
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 16 * kMiB);
  EXPECT_EQ(free_memory(), 0U);
  for (const CUdeviceptr block : blocks) EXPECT_CU(calls::cuMemFreeAsync(block, nullptr));
  synchronize_all();
  for (std::size_t i = 0; i < blocks.size(); ++i)
    EXPECT_CU(calls::cuMemAllocFromPoolAsync(&at, 4 * kMiB - 512, pool, nullptr)) << "what the pool has idle";
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 16 * kMiB);
}

TEST_F(DriverPoolsTest, MemoryThatTheDriverKeepsCountsUsedOrNot) {
  expect("FillsAPoolWithOddBlocks", {{"GPUMEM_LIMIT", "16MiB"}});
}

// The idle block is another stream's, whose work is not done. The driver takes other memory.
SCENE(IsTakenForMoreThanItWasAskedFor) {
  start();
  const CUmemoryPool pool = exportable_pool();
  int no = 0;
  for (const auto rule :
       {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES})
    EXPECT_CU(calls::cuMemPoolSetAttribute(pool, rule, &no));
  const CUstream one = new_stream(), two = new_stream();
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&at, 6 * kMiB, pool, one));
  EXPECT_CU(calls::cuMemFreeAsync(at, one));
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&at, 6 * kMiB, pool, two), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0U) << "the block is freed again";
  EXPECT_EQ(free_memory(), 0U) << "such a pool keeps what it has";
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&at, 7 * kMiB, pool, two), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 12 * kMiB) << "but takes no more";
  EXPECT_CU(calls::cuMemAllocFromPoolAsync(&at, 6 * kMiB, pool, one)) << "what it has serves";
  EXPECT_CU(calls::cuMemPoolDestroy(pool));
  EXPECT_CU(calls::cuMemFreeAsync(at, one));
  EXPECT_EQ(free_memory(), 8 * kMiB);
}

TEST_F(DriverPoolsTest, BlockIsRefusedIfTheDriverTakesMoreForItThanThereIsRoomFor) {
  const std::string said = expect("IsTakenForMoreThanItWasAskedFor", {{"GPUMEM_LIMIT", "8MiB"}});
  EXPECT_NE(said.find("cuMemAllocFromPoolAsync of 4MiB is refused: 8MiB of this process's limit of 8MiB"),
            std::string::npos)
      << said;
}

SCENE_TEST(DriverPoolsTest, BlocksOfADestroyedPoolStayChargedUntilTheyAreFreed) {
  start();
  const CUmemoryPool pool = exportable_pool();
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&one, 4 * kMiB, pool, nullptr));
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&two, 6 * kMiB, pool, nullptr));
  EXPECT_CU(calls::cuMemPoolDestroy(pool));
  EXPECT_NE(calls::cuMemPoolDestroy(pool), CUDA_SUCCESS) << "twice";
  EXPECT_EQ(free_memory(), kPool - 10 * kMiB);
  EXPECT_CU(calls::cuMemFreeAsync(two, nullptr));
  EXPECT_EQ(free_memory(), kPool - 4 * kMiB);
  EXPECT_CU(calls::cuMemFree_v2(one));
  EXPECT_EQ(free_memory(), kPool);
}

SCENE_TEST(DriverPoolsTest, CurrentPoolOfTheDeviceIsChargedIfItIsTheDrivers) {
  start();
  const CUmemoryPool pool = exportable_pool();
  ASSERT_CU(real<decltype(&::cuDeviceSetMemPool)>("cuDeviceSetMemPool")(0, pool));
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocAsync(&at, 8 * kMiB, nullptr));
  EXPECT_EQ(free_memory(), kPool - 8 * kMiB);
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * kMiB);
  EXPECT_EQ(calls::cuMemAllocAsync_ptsz(&at, kPool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
}

SCENE_TEST(DriverPoolsTest, WhatTheDriverRefusesIsNotCharged) {
  start();
  const CUmemoryPool pool = exportable_pool();
  CUdeviceptr at = 0;
  const auto no_stream = reinterpret_cast<CUstream>(std::uintptr_t{0xdead0});
  EXPECT_NE(calls::cuMemAllocFromPoolAsync(&at, 4 * kMiB, pool, no_stream), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kPool);
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&at, 4 * kMiB, pool, nullptr));
  EXPECT_NE(calls::cuMemFreeAsync(at, no_stream), CUDA_SUCCESS);
  EXPECT_EQ(free_memory(), kPool - 4 * kMiB) << "it is there still";
}

#if CUDA_VERSION >= 13000
CUmemoryPool managed_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  EXPECT_CU(calls::cuMemPoolCreate(&pool, &properties));
  return pool;
}

SCENE(UsesManagedPools) {
  start();
  const CUmemoryPool pool = managed_pool();
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&one, 6 * kMiB, pool, nullptr));
  EXPECT_EQ(free_memory(), 10 * kMiB);
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&two, 11 * kMiB, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_CU(calls::cuMemFreeAsync(one, nullptr));
  synchronize_all();
  EXPECT_EQ(free_memory(), 16 * kMiB) << "the driver gives it back";

  CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool its_default = nullptr, its_current = nullptr;
  ASSERT_CU(calls::cuMemGetDefaultMemPool(&its_default, &here, CU_MEM_ALLOCATION_TYPE_MANAGED));
  ASSERT_CU(calls::cuMemGetMemPool(&its_current, &here, CU_MEM_ALLOCATION_TYPE_MANAGED));
  EXPECT_EQ(its_default, its_current);
  EXPECT_EQ(calls::cuMemGetDefaultMemPool(&its_default, nullptr, CU_MEM_ALLOCATION_TYPE_MANAGED),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(calls::cuMemAllocFromPoolAsync(&two, 17 * kMiB, its_default, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&two, 4 * kMiB, its_default, nullptr));
  EXPECT_EQ(free_memory(), 12 * kMiB);
}

TEST_F(DriverPoolsTest, ManagedPoolsAreChargedAsManagedMemoryIs) {
  expect("UsesManagedPools", {{"GPUMEM_LIMIT", "16MiB"}});
}

SCENE(KeepsIdleManagedMemory) {
  start();
  const CUmemoryPool pool = managed_pool();
  cuuint64_t all = ~cuuint64_t{0};
  EXPECT_CU(calls::cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  CUdeviceptr one = 0, two = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&one, 12 * kMiB, pool, nullptr));
  EXPECT_CU(calls::cuMemFreeAsync(one, nullptr));
  synchronize_all();
  EXPECT_EQ(free_memory(), 4 * kMiB) << "the driver keeps it";
  ASSERT_CU(calls::cuMemAlloc_v2(&two, 14 * kMiB)) << "idle memory is in nobody's way";
  EXPECT_EQ(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0U);
  EXPECT_CU(calls::cuMemFree_v2(two));
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&one, 12 * kMiB, pool, nullptr)) << "nor is the slice's";
  EXPECT_CU(calls::cuMemFreeAsync(one, nullptr));
  EXPECT_CU(calls::cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(free_memory(), 16 * kMiB);
}

TEST_F(DriverPoolsTest, IdleMemoryOfThePoolMakesRoom) {
  expect("KeepsIdleManagedMemory", {{"GPUMEM_LIMIT", "16MiB"}});
}

SCENE_TEST(DriverPoolsTest, PoolsOfTheHostTakeNothingOfTheDevice) {
  start();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemoryPool pool = nullptr;
  ASSERT_CU(calls::cuMemPoolCreate(&pool, &properties));
  CUdeviceptr at = 0;
  ASSERT_CU(calls::cuMemAllocFromPoolAsync(&at, 8 * kMiB, pool, nullptr));
  EXPECT_EQ(free_memory(), kPool);
  EXPECT_CU(calls::cuMemFreeAsync(at, nullptr));
}
#endif

}  // namespace
}  // namespace gpumem::shim::test
