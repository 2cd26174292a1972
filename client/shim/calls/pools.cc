// Memory pools: the driver's own, with blocks and figures of the slice.
#include <algorithm>

#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/memory/blocks/context.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuDeviceGetCount)> real_count("cuDeviceGetCount");
constinit RealCall<decltype(::cuDeviceGetDefaultMemPool)> real_default("cuDeviceGetDefaultMemPool");
constinit RealCall<decltype(::cuMemPoolCreate)> real_create_pool("cuMemPoolCreate");
constinit RealCall<decltype(::cuMemPoolDestroy)> real_destroy_pool("cuMemPoolDestroy");
constinit RealCall<decltype(::cuMemPoolGetAttribute)> real_get_attribute("cuMemPoolGetAttribute");
constinit RealCall<decltype(::cuMemPoolSetAttribute)> real_set_attribute("cuMemPoolSetAttribute");
constinit RealCall<decltype(::cuMemPoolTrimTo)> real_trim("cuMemPoolTrimTo");
constinit RealCall<decltype(::cuDeviceSetMemPool)> real_set_current("cuDeviceSetMemPool");
constinit RealCall<decltype(::cuMemPoolSetAccess)> real_set_pool_access("cuMemPoolSetAccess");

/// A field that headers before CUDA 12.2 do not have.
template <class Properties>
Bytes most_of(const Properties& properties) {
  if constexpr (requires { properties.maxSize; }) {
    return {properties.maxSize};
  } else {
    return {};
  }
}

/// Pools that can be passed to other processes, or lie elsewhere, stay the driver's.
bool is_of_slice(const CUmemPoolProps& properties) {
  return properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

constexpr int kManaged = 2;  // CU_MEM_ALLOCATION_TYPE_MANAGED, of CUDA 13

/// The memory that a pool takes that has these properties: the slice of a device, or pinned memory of the
/// host. Managed memory that lies nowhere in particular is charged to the current context's device, as
/// cuMemAllocManaged is.
struct PoolMemory {
  CUresult result = CUDA_SUCCESS;
  DeviceMemory* of_device = nullptr;
  Chargeable* charged = nullptr;  ///< null: nothing is
};
CUdevice device_of(CUmemAllocationType type, const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return static_cast<int>(type) == kManaged ? CurrentContext::get().device : -1;
}

PoolMemory memory_of(CUmemAllocationType type, const CUmemLocation& location) {
  Process& process = Process::current();
  if (const CUdevice device = device_of(type, location); device >= 0) {
    const auto found = process.memory_of(device);
    return {found.result, found.memory, found.memory};
  }
  const bool is_pinned = static_cast<int>(type) != kManaged && is_of_host(location);
  return {.charged = process.is_brokered() && is_pinned ? &process.pinned() : nullptr};
}

/// What of the slice belongs to the driver's own figure. Reserved memory comes in whole units.
Bytes figure_of(const Pool& pool, CUmemPool_attribute attribute) {
  const auto [used, most_used] = pool.figures();
  const auto in_units = [&](Bytes bytes) {
    return bytes.rounded_up(pool.memory().granularity()).value_or(bytes);
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return most_used;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return in_units(used);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return in_units(most_used);
    default: return {};
  }
}

bool is_peak(CUmemPool_attribute attribute) {
  return attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
}

CUresult allow_peers(const Pool& pool, const CUmemAccessDesc* map, std::size_t count) {
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    const bool is_peer = map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                         map[i].location.id != pool.memory().ordinal() &&
                         map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (is_peer) result = pool.memory().allow(map[i].location.id);
  }
  return result;
}

}  // namespace

FoundPool find_pool(CUmemoryPool handle) {
  Process& process = Process::current();
  if (!process.is_brokered()) return {};
  if (auto known = process.pools().find(handle)) return {CUDA_SUCCESS, std::move(known), handle};
  int count = 0;
  if (real_count(&count) != CUDA_SUCCESS) return {.handle = handle};
  for (int device = 0; device < count; ++device) {
    CUmemoryPool its_default = nullptr;
    if (real_default(&its_default, device) != CUDA_SUCCESS || its_default != handle) continue;
    const auto found = process.memory_of(device);
    if (found.memory == nullptr) return {found.result, nullptr, handle};
    return {CUDA_SUCCESS, process.pools().find_or_default(handle, *found.memory), handle};
  }
  return {.handle = handle};
}

CUresult calls::cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return guarded([&] {
    Process& process = Process::current();
    const PoolMemory memory =
        poolProps != nullptr ? memory_of(poolProps->allocType, poolProps->location) : PoolMemory{};
    if (memory.result != CUDA_SUCCESS) return memory.result;
    const CUresult created = real_create_pool(pool, poolProps);
    if (created != CUDA_SUCCESS || memory.charged == nullptr) return created;
    if (is_of_slice(*poolProps))
      process.pools().add(*pool, *memory.of_device, most_of(*poolProps));
    else
      process.driver_pools().add(*pool, *memory.charged);
    return created;
  });
}

// Its blocks stay until they are freed.
CUresult calls::cuMemPoolDestroy(CUmemoryPool pool) {
  return guarded([&] {
    // Before: the next pool may have its handle at once.
    Pools& pools = Process::current().pools();
    const auto known = pools.take(pool);
    const CUresult destroyed =
        Process::current().driver_pools().destroy(pool, [pool] { return real_destroy_pool(pool); });
    if (destroyed != CUDA_SUCCESS && known) pools.put_back(known);
    CurrentPool::forget();
    return destroyed;
  });
}

CUresult calls::cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  const CUresult set = real_set_current(dev, pool);
  CurrentPool::forget();
  return set;
}

CUresult calls::cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return guarded([&] {
    const CUresult known = real_get_attribute(pool, attr, value);
    if (known != CUDA_SUCCESS) return known;
    const auto ours = find_pool(pool).pool;
    const Bytes more = ours ? figure_of(*ours, attr) : Bytes{};
    if (!more.is_zero()) *static_cast<cuuint64_t*>(value) += more.count;
    return CUDA_SUCCESS;
  });
}

CUresult calls::cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return guarded([&] {
    const CUresult set = real_set_attribute(pool, attr, value);
    if (set != CUDA_SUCCESS || !is_peak(attr)) return set;
    if (const auto ours = find_pool(pool).pool) ours->reset_most_used();
    return set;
  });
}

CUresult calls::cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  return guarded([&] {
    const CUresult trimmed = real_trim(pool, minBytesToKeep);
    if (trimmed != CUDA_SUCCESS) return trimmed;
    if (const auto drivers = Process::current().driver_pools().find(pool)) drivers->settle();
    if (const auto ours = find_pool(pool).pool) ours->memory().trim({minBytesToKeep});
    return trimmed;
  });
}

#if CUDA_VERSION >= 13000
namespace {

using FindByLocation = CUresult(CUmemoryPool*, CUmemLocation*, CUmemAllocationType);
constinit RealCall<FindByLocation> real_default_of("cuMemGetDefaultMemPool");
constinit RealCall<FindByLocation> real_current_of("cuMemGetMemPool");
constinit RealCall<decltype(::cuMemSetMemPool)> real_set_current_of("cuMemSetMemPool");

/// A managed pool of a location, or one of the host, is there from the start. It is charged as soon as the
/// program knows it.
CUresult find_by_location(RealCall<FindByLocation>& real_call, CUmemoryPool* out, CUmemLocation* location,
                          CUmemAllocationType type) {
  return guarded([&] {
    const CUresult known = real_call(out, location, type);
    if (known != CUDA_SUCCESS) return known;
    const bool is_of_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (static_cast<int>(type) != kManaged && is_of_device) return known;
    const PoolMemory memory = memory_of(type, *location);
    if (memory.charged != nullptr) Process::current().driver_pools().add(*out, *memory.charged);
    return memory.result;
  });
}

}  // namespace

CUresult calls::cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                       CUmemAllocationType type) {
  return find_by_location(real_default_of, pool_out, location, type);
}
CUresult calls::cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return find_by_location(real_current_of, pool, location, type);
}
CUresult calls::cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult set = real_set_current_of(location, type, pool);
  CurrentPool::forget();
  return set;
}
#endif

CUresult calls::cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return guarded([&] {
    const CUresult set = real_set_pool_access(pool, map, count);
    if (set != CUDA_SUCCESS) return set;
    const auto ours = find_pool(pool).pool;
    return ours ? allow_peers(*ours, map, count) : set;
  });
}

}  // namespace gpumem::shim
