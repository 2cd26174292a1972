// Memory pools: made, ended, set to.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/memory/locations.h"

namespace gpumem::sim {
namespace {

/// Fields that older headers do not have.
template <class Properties>
std::uint64_t max_size_of(const Properties& properties) {
  if constexpr (requires { properties.maxSize; }) {
    return properties.maxSize;
  } else {
    return 0;
  }
}

constexpr unsigned kHardwareDecompression = 2;  // CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS, of CUDA 12.8

template <class Properties>
bool has_known_usage([[maybe_unused]] const Properties& properties) {
  if constexpr (requires { properties.usage; }) {
    return (properties.usage & ~kHardwareDecompression) == 0;
  } else {
    return true;
  }
}

/// The limit in whole chunks; 0 stays 0.
std::uint64_t in_chunks(std::uint64_t size) {
  if (size > ~std::uint64_t{0} - kGranularity.count) return 0;
  return (size + kGranularity.count - 1) / kGranularity.count * kGranularity.count;
}

/// Managed memory is of CUDA 13.
bool is_managed(const CUmemPoolProps& wanted) {
  return CUDA_VERSION >= 13000 && static_cast<int>(wanted.allocType) == kManagedAllocation;
}

CUresult check_pool(Call& driver, const CUmemPoolProps& wanted) {
  const auto is_zero = [](unsigned char byte) { return byte == 0; };
  if (!std::all_of(std::begin(wanted.reserved), std::end(wanted.reserved), is_zero) ||
      !has_known_usage(wanted)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUmemAllocationProp extents{};
  extents.type = wanted.allocType;
  extents.requestedHandleTypes = wanted.handleTypes;
  extents.location = wanted.location;
  extents.win32HandleMetaData = wanted.win32SecurityAttributes;
  if (is_managed(wanted)) {
    const bool is_plain =
        wanted.handleTypes == CU_MEM_HANDLE_TYPE_NONE && wanted.win32SecurityAttributes == nullptr;
    return is_plain ? check_managed_location(driver, wanted.location) : CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult valid = check_properties(driver, &extents);
  return valid == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : valid;
}

/// Where an attribute of 64 bits lies in the pool; nullptr: it is none that can be set.
std::uint64_t* number_of(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool.release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool.reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool.used_high;
    default: return nullptr;
  }
}

bool* switch_of(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: return &pool.follows_events;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return &pool.is_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return &pool.adds_dependencies;
    default: return nullptr;
  }
}

CUresult set(Pool& pool, CUmemPool_attribute attribute, const void* value) {
  if (bool* const is_on = switch_of(pool, attribute); is_on != nullptr) {
    *is_on = *static_cast<const int*>(value) != 0;
    return CUDA_SUCCESS;
  }
  std::uint64_t* const number = number_of(pool, attribute);
  if (number == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t wanted = *static_cast<const cuuint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    *number = wanted;
    return CUDA_SUCCESS;
  }
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  // From now on the highest is what there is now.
  const bool is_used = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
  *number = is_used ? pool.blocks.used() : pool.blocks.reserved();
  return CUDA_SUCCESS;
}

CUresult get(Pool& pool, CUmemPool_attribute attribute, void* out) {
  if (const bool* const is_on = switch_of(pool, attribute); is_on != nullptr) {
    *static_cast<int*>(out) = *is_on ? 1 : 0;
    return CUDA_SUCCESS;
  }
  std::uint64_t value = 0;
  if (const std::uint64_t* const number = number_of(pool, attribute); number != nullptr) {
    value = *number;
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
    value = pool.blocks.reserved();
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT) {
    value = pool.blocks.used();
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *static_cast<cuuint64_t*>(out) = value;
  return CUDA_SUCCESS;
}

/// The pool's own device keeps its access: the real driver refuses to take it (NVIDIA/cuda-python#2807).
CUresult access_change(Call& driver, const Pool& pool, const CUmemAccessDesc& wanted, AccessChange* out) {
  if (wanted.location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_NOT_SUPPORTED;
  std::uint32_t device = 0;
  if (const CUresult known = resolve(driver, wanted.location, &device); known != CUDA_SUCCESS) return known;
  const bool is_full = wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const bool is_known = is_full || wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                        wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (!is_known || (pool.is_managed && !is_full)) return CUDA_ERROR_INVALID_VALUE;
  if (device == pool.device && !is_full) return CUDA_ERROR_INVALID_DEVICE;
  if (device == layout::kHost && device != pool.device && !pool.is_managed) return CUDA_ERROR_NOT_SUPPORTED;
  *out = {device, wanted.flags};
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* wanted) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_pool(driver, *wanted); valid != CUDA_SUCCESS) return valid;
  std::uint32_t device = 0;
  // Managed memory that prefers no location begins as the host's.
  if (resolve(driver, wanted->location, &device) != CUDA_SUCCESS) device = layout::kHost;
  const Pool& pool = driver->pools.create({.location = wanted->location,
                                           .device = device,
                                           .handle_types = static_cast<std::uint32_t>(wanted->handleTypes),
                                           .max_size = in_chunks(max_size_of(*wanted)),
                                           .is_managed = is_managed(*wanted)});
  *out = handle<CUmemoryPool>(pool.number);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolDestroy(CUmemoryPool named) {
  return with_pool(named, [](Call& driver, Pool& pool) {
    if (pool.is_default) return CUDA_ERROR_INVALID_VALUE;
    driver->pools.destroy(pool);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuMemPoolSetAttribute(CUmemoryPool named, CUmemPool_attribute attribute, void* value) {
  return with_pool(named, [&](Call&, Pool& pool) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : set(pool, attribute, value);
  });
}

CUresult api::cuMemPoolGetAttribute(CUmemoryPool named, CUmemPool_attribute attribute, void* value) {
  return with_pool(named, [&](Call&, Pool& pool) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : get(pool, attribute, value);
  });
}

CUresult api::cuMemPoolSetAccess(CUmemoryPool named, const CUmemAccessDesc* map, size_t count) {
  return with_pool(named, [&](Call& driver, Pool& pool) {
    if (map == nullptr && count > 0) return CUDA_ERROR_INVALID_VALUE;
    if (count > static_cast<size_t>(driver->device_count())) return CUDA_ERROR_NOT_SUPPORTED;
    std::vector<AccessChange> changes(count);
    for (size_t i = 0; i < count; ++i) {
      const CUresult valid = access_change(driver, pool, map[i], &changes[i]);
      if (valid != CUDA_SUCCESS) return valid;
    }
    return driver->pools.set_access(pool, changes);
  });
}

CUresult api::cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool named, CUmemLocation* location) {
  return with_pool(named, [&](Call& driver, Pool& pool) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint32_t device = 0;
    const CUresult known = resolve(driver, *location, &device);
    if (known == CUDA_SUCCESS) *flags = static_cast<CUmemAccess_flags>(pool.access[device]);
    return known;
  });
}

CUresult api::cuMemPoolTrimTo(CUmemoryPool named, size_t keep) {
  return with_pool(named, [&](Call& driver, Pool& pool) {
    driver->pools.trim(pool, keep);
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
