// Virtual memory management: address ranges, what is mapped there, who may touch it.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "calls.h"
#include "sim/driver/memory/locations.h"

namespace gpumem::sim {
namespace {

bool is_power_of_two(std::uint64_t value) { return value > 0 && (value & (value - 1)) == 0; }

bool is_access(unsigned flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

CUresult api::cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr hint,
                                  unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (address == nullptr || !is_granular_size(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !is_power_of_two(alignment)) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t unit = std::max<std::uint64_t>(alignment, kGranularity.count);
  return driver->space.reserve({.size = size, .alignment = unit, .hint = hint % unit == 0 ? hint : 0},
                               address);
}

CUresult api::cuMemAddressFree(CUdeviceptr address, size_t size) {
  Call driver;
  if (!driver) return driver.error();
  return driver->space.unreserve(address, size, 0);
}

CUresult api::cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (!is_granular(address) || !is_granular_size(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr || offset > extent->size || size > extent->size - offset)
    return CUDA_ERROR_INVALID_VALUE;
  if (size != extent->size) return CUDA_ERROR_NOT_SUPPORTED;  // a part of it
  return driver->space.map(address, size, *extent);
}

CUresult api::cuMemUnmap(CUdeviceptr address, size_t size) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  if (found.reservation == nullptr || found.reservation->use != Use::kProgram)
    return CUDA_ERROR_INVALID_VALUE;
  const bool is_inside = is_granular(address) && is_granular_size(size) &&
                         size <= found.range_base + found.reservation->size - address;
  if (is_inside && driver->space.is_unmapped(address, size)) return CUDA_SUCCESS;  // nothing to unmap
  return driver->unmap(address, size);
}

CUresult api::cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* desc, size_t count) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  if (found.reservation == nullptr || found.reservation->use != Use::kProgram)
    return CUDA_ERROR_INVALID_VALUE;
  if (desc == nullptr || count == 0 || count > layout::kHost + 1) return CUDA_ERROR_INVALID_VALUE;
  std::vector<AccessChange> changes;
  for (size_t i = 0; i < count; ++i) {
    if (!is_access(desc[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    AccessChange change{0, desc[i].flags};
    const CUresult known = resolve(driver, desc[i].location, &change.device);
    if (known != CUDA_SUCCESS) return known;
    const bool is_device_memory = found.mapping != nullptr && found.mapping->extent->device != layout::kHost;
    if (change.device == layout::kHost && is_device_memory) return CUDA_ERROR_INVALID_VALUE;
    changes.push_back(change);
  }
  const std::lock_guard no_copies(driver->in_use);
  return driver->space.set_access(address, size, changes);
}

CUresult api::cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t device = 0;
  if (const CUresult known = resolve(driver, *location, &device); known != CUDA_SUCCESS) return known;
  const auto found = driver->space.find(address);
  if (found.mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = found.mapping->access[device];
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
