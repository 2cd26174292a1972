// Memory pools within one process: what they and their allocations tell, who reaches them, what they refuse.
#include "tests/sim/memory/pool_support.h"

namespace gpumem::sim::test {
namespace {

using Pools = SimTest;

class PoolsOfTwoDevices : public SimTest {
 protected:
  PoolsOfTwoDevices() : SimTest("2x64MiB") {}
};

TEST_IN_CONTEXT(Pools, AttributesStartAsDocumentedAndBadOnesAreRefused) {
  const CUmemoryPool pool = create_pool();
  for (const CUmemPool_attribute attribute :
       {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    int is_on = -1, off = 0;
    EXPECT_CU(cuMemPoolGetAttribute(pool, attribute, &is_on));
    EXPECT_EQ(is_on, 1);
    EXPECT_CU(cuMemPoolSetAttribute(pool, attribute, &off));
    EXPECT_CU(cuMemPoolGetAttribute(pool, attribute, &is_on));
    EXPECT_EQ(is_on, 0);
  }
  EXPECT_EQ(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0U);
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(set(pool, static_cast<CUmemPool_attribute>(15), 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(Pools, EachFreeFreesOnceAndOnlyWholeAllocations) {
  CUdeviceptr memory = 0, ordinary = 0;
  ASSERT_CU(cuMemAllocAsync(&memory, 4096, nullptr));
  EXPECT_EQ(cuMemFreeAsync(memory + 512, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(memory + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemUnmap(memory, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(memory, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemFreeAsync(memory, nullptr));
  EXPECT_EQ(cuMemFreeAsync(memory, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeAsync(0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeAsync(reserve(kPage), nullptr), CUDA_ERROR_INVALID_VALUE);
  int local = 0;
  EXPECT_EQ(cuMemFreeAsync(reinterpret_cast<CUdeviceptr>(&local), nullptr), CUDA_ERROR_INVALID_VALUE);

  const CUstream stream = stream_apart();
  Barrier barrier;
  ASSERT_CU(cuMemAlloc(&ordinary, kPage));
  ASSERT_CU(cuMemsetD8(ordinary, 1, kPage));
  barrier.put_in(stream);
  EXPECT_CU(cuMemFreeAsync(ordinary, stream));
  EXPECT_EQ(cuMemFreeAsync(ordinary, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(*bytes_at(ordinary), 1);
  barrier.open();
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_EQ(cuMemFree(ordinary), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), kContext);
}

TEST_IN_CONTEXT(Pools, PointerAttributesTellOfTheAllocation) {
  const CUmemoryPool pool = create_pool();
  allocate(pool, 512, nullptr);
  const CUdeviceptr memory = allocate(pool, 1000, nullptr);
  CUmemoryPool of = nullptr;
  CUdeviceptr start = 0;
  size_t size = 0;
  bool is_ipc = true;
  EXPECT_CU(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 10));
  EXPECT_EQ(of, pool);
  EXPECT_CU(cuMemGetAddressRange(&start, &size, memory + 999));
  EXPECT_EQ(start, memory);
  EXPECT_EQ(size, 1000U);
  EXPECT_CU(cuPointerGetAttribute(&is_ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
  EXPECT_FALSE(is_ipc);
  unsigned long long id = 0, next = 0;
  EXPECT_CU(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  EXPECT_CU(cuMemFreeAsync(memory, nullptr));
  EXPECT_EQ(cuPointerGetAttribute(&next, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(allocate(pool, 1000, nullptr), memory);
  EXPECT_CU(cuPointerGetAttribute(&next, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  EXPECT_NE(id, next);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(memory)), CUDA_ERROR_INVALID_VALUE);
}

TEST_IN_CONTEXT(PoolsOfTwoDevices, AccessIsSetForPeersAndKeptForTheOwnDevice) {
  const CUmemoryPool pool = create_pool();
  const CUdeviceptr memory = allocate(pool, kPage, nullptr);
  const auto desc = [](int device, CUmemAccess_flags flags) {
    return CUmemAccessDesc{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  };
  const auto access = [&](int device) {
    CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    CUmemAccess_flags flags{};
    EXPECT_CU(cuMemPoolGetAccess(&flags, pool, &location));
    return flags;
  };
  EXPECT_EQ(access(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(access(1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  const CUmemAccessDesc peer = desc(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_CU(cuMemPoolSetAccess(pool, &peer, 1));
  EXPECT_EQ(access(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

  // One bad entry leaves all as it was.
  const CUmemAccessDesc none[] = {desc(1, CU_MEM_ACCESS_FLAGS_PROT_NONE),
                                  desc(0, CU_MEM_ACCESS_FLAGS_PROT_NONE)};
  EXPECT_EQ(cuMemPoolSetAccess(pool, none, 2), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(access(1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_CU(cuMemsetD8(memory, 1, kPage));
  EXPECT_CU(cuMemPoolSetAccess(pool, none, 1));
  EXPECT_EQ(access(1), CU_MEM_ACCESS_FLAGS_PROT_NONE);

  // A copy in a context of the other device needs that access.
  CUdeviceptr other = 0;
  enter_primary(1);
  ASSERT_CU(cuMemAlloc(&other, kPage));
  EXPECT_EQ(cuMemcpyDtoD(other, memory, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(memory, 1, kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CU(cuMemPoolSetAccess(pool, &peer, 1));
  EXPECT_CU(cuMemcpyDtoD(other, memory, kPage));

  const CUmemAccessDesc unknown = desc(2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(cuMemPoolSetAccess(pool, &unknown, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemPoolSetAccess(pool, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolSetAccess(pool, &peer, 3), CUDA_ERROR_NOT_SUPPORTED);
}

#if CUDA_VERSION >= 13000
TEST_IN_CONTEXT(Pools, PoolsOfALocationAreFoundAndSet) {
  CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0}, node{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CUmemoryPool pool = nullptr, of_node = nullptr;
  EXPECT_CU(cuMemGetMemPool(&pool, &device, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_EQ(pool, default_pool());
  EXPECT_CU(cuMemGetDefaultMemPool(&of_node, &node, CU_MEM_ALLOCATION_TYPE_PINNED));
  EXPECT_NE(of_node, pool);
  const CUmemoryPool own = create_pool();
  EXPECT_CU(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, own));
  EXPECT_CU(cuDeviceGetMemPool(&pool, 0));
  EXPECT_EQ(pool, own);
  EXPECT_EQ(cuMemSetMemPool(&node, CU_MEM_ALLOCATION_TYPE_PINNED, own), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetMemPool(&pool, nullptr, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetMemPool(&pool, &device, CU_MEM_ALLOCATION_TYPE_INVALID), CUDA_ERROR_INVALID_VALUE);
}
#endif

}  // namespace
}  // namespace gpumem::sim::test
