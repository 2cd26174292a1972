#pragma once
// What tests of memory pools say in one word.
#include <cuda.h>

#include "tests/sim/work_support.h"

namespace gpumem::sim::test {

inline constexpr std::uint64_t kContext = 2 * kMiB;  ///< what a context costs of 64 MiB

inline CUmemPoolProps pool_properties(CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemPoolProps wanted{};
  wanted.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.handleTypes = types;
  wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return wanted;
}

inline CUmemoryPool create_pool(const CUmemPoolProps& wanted = pool_properties()) {
  CUmemoryPool pool = nullptr;
  EXPECT_CU(cuMemPoolCreate(&pool, &wanted));
  return pool;
}

inline CUmemoryPool default_pool(CUdevice device = 0) {
  CUmemoryPool pool = nullptr;
  EXPECT_CU(cuDeviceGetDefaultMemPool(&pool, device));
  return pool;
}

inline CUdeviceptr allocate(CUmemoryPool pool, std::uint64_t size, CUstream stream) {
  CUdeviceptr address = 0;
  EXPECT_CU(cuMemAllocFromPoolAsync(&address, size, pool, stream));
  return address;
}

inline std::uint64_t get(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = ~cuuint64_t{0};
  EXPECT_CU(cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}
inline std::uint64_t reserved(CUmemoryPool pool) { return get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
inline std::uint64_t used_in(CUmemoryPool pool) { return get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }

inline CUresult set(CUmemoryPool pool, CUmemPool_attribute attribute, std::uint64_t wanted) {
  cuuint64_t value = wanted;
  return cuMemPoolSetAttribute(pool, attribute, &value);
}
/// Keeps what is freed.
inline void keep_all(CUmemoryPool pool) {
  EXPECT_CU(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~std::uint64_t{0}));
}
/// Forbids every reuse by other streams but the named one; 0: all.
inline void allow_only(CUmemoryPool pool, int allowed) {
  for (const CUmemPool_attribute attribute :
       {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    int is_on = attribute == allowed ? 1 : 0;
    EXPECT_CU(cuMemPoolSetAttribute(pool, attribute, &is_on));
  }
}

}  // namespace gpumem::sim::test
