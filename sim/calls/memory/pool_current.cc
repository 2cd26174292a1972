// Which pool a device, or the host, allocates from.
#include <cuda.h>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/memory/locations.h"

namespace gpumem::sim {
namespace {

CUmemLocation device_location(CUdevice device) { return {CU_MEM_LOCATION_TYPE_DEVICE, device}; }

/// Managed memory is of CUDA 13.
bool is_managed(CUmemAllocationType type) {
  return CUDA_VERSION >= 13000 && static_cast<int>(type) == kManagedAllocation;
}

CUresult check_place(Call& driver, const CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (is_managed(type)) return check_managed_location(driver, *location);
  CUmemAllocationProp extents{};
  extents.type = type;
  extents.location = *location;
  return check_properties(driver, &extents);
}

/// Answers the pool that `choose` takes for a location.
template <class Choose>
CUresult answer(CUmemoryPool* out, const CUmemLocation* location, CUmemAllocationType type, Choose choose) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_place(driver, location, type); valid != CUDA_SUCCESS) return valid;
  *out = handle<CUmemoryPool>(choose(driver->pools, *location, is_managed(type)).number);
  return CUDA_SUCCESS;
}

Pool& default_pool(Pools& pools, const CUmemLocation& location, bool is_managed) {
  return pools.default_of(location, is_managed);
}
Pool& current_pool(Pools& pools, const CUmemLocation& location, bool is_managed) {
  return pools.current_of(location, is_managed);
}

CUresult set(const CUmemLocation* location, CUmemAllocationType type, CUmemoryPool named) {
  return with_pool(named, [&](Call& driver, Pool& pool) {
    if (const CUresult valid = check_place(driver, location, type); valid != CUDA_SUCCESS) return valid;
    const bool matches = Pools::is_same(pool.location, *location) && pool.is_managed == is_managed(type);
    if (pool.is_imported || !matches) return CUDA_ERROR_INVALID_VALUE;
    driver->pools.set_current(*location, pool);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult api::cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  const CUmemLocation location = device_location(device);
  return answer(out, &location, CU_MEM_ALLOCATION_TYPE_PINNED, default_pool);
}

CUresult api::cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  const CUmemLocation location = device_location(device);
  return answer(out, &location, CU_MEM_ALLOCATION_TYPE_PINNED, current_pool);
}

CUresult api::cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  const CUmemLocation location = device_location(device);
  return set(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
}

#if CUDA_VERSION >= 13000
CUresult api::cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  return answer(out, location, type, default_pool);
}

CUresult api::cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, CUmemAllocationType type) {
  return answer(out, location, type, current_pool);
}

CUresult api::cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return set(location, type, pool);
}
#endif

}  // namespace gpumem::sim
