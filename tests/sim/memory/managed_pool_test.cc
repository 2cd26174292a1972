// Memory pools of managed memory.
#include <cuda.h>

#include <utility>

#include "tests/sim/memory/pool_support.h"

#if CUDA_VERSION >= 13000
namespace gpumem::sim::test {
namespace {

class ManagedPools : public SimTest {
 protected:
  ManagedPools() : SimTest("2x64MiB") {}
};

constexpr CUmemLocation kNowhere{CU_MEM_LOCATION_TYPE_NONE, 0}, kSecond{CU_MEM_LOCATION_TYPE_DEVICE, 1},
    kHost{CU_MEM_LOCATION_TYPE_HOST, 0};

CUmemPoolProps managed_properties(const CUmemLocation& location) {
  CUmemPoolProps wanted = pool_properties();
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  wanted.location = location;
  return wanted;
}

CUmemLocation preferred(CUdeviceptr address, size_t size) {
  int type = -1, id = -1;
  EXPECT_CU(cuMemRangeGetAttribute(&type, sizeof type, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
                                   address, size));
  EXPECT_CU(
      cuMemRangeGetAttribute(&id, sizeof id, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, address, size));
  return {static_cast<CUmemLocationType>(type), id};
}

TEST_IN_PROCESS(ManagedPools, MemoryIsTheHostsAndEveryDevices) {
  enter_primary(1);
  enter_primary(0);
  for (const CUmemLocation& location : {kNowhere, kSecond, kHost}) {
    const CUmemoryPool pool = create_pool(managed_properties(location));
    const CUstream stream = stream_apart();
    const CUdeviceptr memory = allocate(pool, kPage, stream);
    EXPECT_CU(cuMemsetD8Async(memory, 7, kPage, stream));
    EXPECT_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(bytes_at(memory)[kPage - 1], 7);
    for (const CUmemLocation& other : {kSecond, kHost}) {
      CUmemAccess_flags flags{};
      CUmemLocation asked = other;
      EXPECT_CU(cuMemPoolGetAccess(&flags, pool, &asked));
      EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      const CUmemAccessDesc none{other, CU_MEM_ACCESS_FLAGS_PROT_NONE};
      EXPECT_NE(cuMemPoolSetAccess(pool, &none, 1), CUDA_SUCCESS) << "nobody can be kept out";
    }
    EXPECT_CU(cuMemFreeAsync(memory, stream));
    EXPECT_CU(cuMemPoolDestroy(pool));
  }
}

TEST_IN_PROCESS(ManagedPools, PreferredLocationIsChargedAndTold) {
  enter_primary(1);
  enter_primary(0);
  const std::uint64_t first = used(0), second = used(1);
  const CUmemoryPool pool = create_pool(managed_properties(kSecond));
  const CUmemoryPool on_host = create_pool(managed_properties(kHost));
  const CUstream stream = stream_apart();
  const CUdeviceptr memory = allocate(pool, kPage, stream), host = allocate(on_host, kPage, stream);
  EXPECT_EQ(used(0), first);
  EXPECT_EQ(used(1), second + kPage);
  EXPECT_EQ(preferred(memory, kPage).type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(preferred(memory, kPage).id, 1);
  EXPECT_EQ(preferred(host, kPage).type, CU_MEM_LOCATION_TYPE_HOST);
  EXPECT_CU(cuMemFreeAsync(memory, stream));
  EXPECT_CU(cuMemFreeAsync(host, stream));
  EXPECT_CU(cuStreamSynchronize(stream));
  EXPECT_EQ(used(1), second);
}

TEST_IN_CONTEXT(ManagedPools, EachAllocationIsManagedMemoryOfItsOwn) {
  const CUmemoryPool pool = create_pool(managed_properties(kNowhere));
  const CUstream stream = stream_apart();
  const CUdeviceptr one = allocate(pool, 100, stream), other = allocate(pool, 100, stream);
  unsigned is_managed = 0;
  CUdeviceptr start = 0;
  EXPECT_CU(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, one + 99));
  EXPECT_TRUE(is_managed & 1U);
  EXPECT_CU(cuMemGetAddressRange(&start, nullptr, other + 1));
  EXPECT_EQ(start, other);
  EXPECT_CU(cuMemAdvise(one, 100, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost));
  EXPECT_CU(cuMemPrefetchAsync(one, 100, kHost, 0, stream));
  EXPECT_EQ(preferred(one, 100).type, CU_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(preferred(other, 100).type, CU_MEM_LOCATION_TYPE_NONE) << "a page of its own";
  EXPECT_EQ(cuMemAdvise(one, kPage, CU_MEM_ADVISE_SET_READ_MOSTLY, kHost), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuStreamAttachMemAsync(stream, one, 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_EQ(cuStreamAttachMemAsync(stream, one + 4, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamWriteValue32(stream, one, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFreeAsync(one, stream));
  const CUdeviceptr again = allocate(pool, 100, stream);
  EXPECT_EQ(again, one);
  EXPECT_EQ(preferred(again, 100).type, CU_MEM_LOCATION_TYPE_NONE) << "advice goes with the allocation";
}

TEST_IN_CONTEXT(ManagedPools, LocationsHaveOnesOfEachType) {
  CUmemLocation nowhere = kNowhere, device{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr auto kManaged = CU_MEM_ALLOCATION_TYPE_MANAGED;
  CUmemoryPool none = nullptr, managed = nullptr, found = nullptr;
  EXPECT_CU(cuMemGetDefaultMemPool(&none, &nowhere, kManaged));
  EXPECT_CU(cuMemGetDefaultMemPool(&managed, &device, kManaged));
  EXPECT_NE(none, managed);
  EXPECT_NE(managed, default_pool()) << "pinned memory";
  EXPECT_EQ(cuMemPoolDestroy(managed), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetDefaultMemPool(&found, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED),
            CUDA_ERROR_INVALID_VALUE);
  const CUmemoryPool own = create_pool(managed_properties(device));
  EXPECT_EQ(cuDeviceSetMemPool(0, own), CUDA_ERROR_INVALID_VALUE) << "cuMemAllocAsync gives pinned memory";
  EXPECT_EQ(cuMemSetMemPool(&nowhere, kManaged, own), CUDA_ERROR_INVALID_VALUE) << "of another place";
  EXPECT_CU(cuMemSetMemPool(&device, kManaged, own));
  EXPECT_CU(cuMemGetMemPool(&found, &device, kManaged));
  EXPECT_EQ(found, own);
  EXPECT_CU(cuMemPoolDestroy(own));
  EXPECT_CU(cuMemGetMemPool(&found, &device, kManaged));
  EXPECT_EQ(found, managed);
}

TEST_IN_CONTEXT(ManagedPools, WhatCannotBeIsRefused) {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps shared = managed_properties(kNowhere);
  shared.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  EXPECT_EQ(cuMemPoolCreate(&pool, &shared), CUDA_ERROR_INVALID_VALUE);
  for (const auto& [type, id] :
       {std::pair{CU_MEM_LOCATION_TYPE_DEVICE, 2}, std::pair{CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0},
        std::pair{CU_MEM_LOCATION_TYPE_HOST_NUMA, 9999}}) {
    const CUmemPoolProps wanted = managed_properties({type, id});
    EXPECT_EQ(cuMemPoolCreate(&pool, &wanted), CUDA_ERROR_INVALID_VALUE);
  }
  pool = create_pool(managed_properties(kNowhere));
  const CUstream stream = stream_apart();
  ASSERT_CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr memory = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync(&memory, 4, pool, stream), CUDA_ERROR_NOT_SUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_CU(cuStreamEndCapture(stream, &graph));
}

}  // namespace
}  // namespace gpumem::sim::test
#endif
