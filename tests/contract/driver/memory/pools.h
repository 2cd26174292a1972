#pragma once
#include <limits>

#include "tests/contract/driver/streams.h"

namespace gpumem::contract {

// In a Process only; what is stream-ordered, with a context.

constexpr std::uint64_t kEverything = std::numeric_limits<std::uint64_t>::max();

/// A pool of the first device.
inline CUmemoryPool create_pool(CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = handle_types;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device().ordinal;
  CUmemoryPool pool = nullptr;
  must(calls().cuMemPoolCreate(&pool, &properties));
  return pool;
}

template <class Value>
Value ask(CUmemoryPool pool, CUmemPool_attribute attribute) {
  Value value{};
  must(calls().cuMemPoolGetAttribute(pool, attribute, &value));
  return value;
}
inline std::uint64_t reserved(CUmemoryPool pool) {
  return ask<cuuint64_t>(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}
inline std::uint64_t in_use(CUmemoryPool pool) {
  return ask<cuuint64_t>(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

/// The pool keeps up to `bytes` that nobody uses.
inline void keep(CUmemoryPool pool, std::uint64_t bytes) {
  cuuint64_t threshold = bytes;
  must(calls().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

inline CUdeviceptr take(CUmemoryPool pool, std::uint64_t size, CUstream stream) {
  CUdeviceptr address = 0;
  must(calls().cuMemAllocFromPoolAsync(&address, size, pool, stream));
  return address;
}

inline void give_back(CUdeviceptr address, CUstream stream) {
  must(calls().cuMemFreeAsync(address, stream));
  must(calls().cuStreamSynchronize(stream));
}

}  // namespace gpumem::contract
