// Virtual memory management: physical extents, address ranges, mappings, sharing by descriptor.
#include <cuda.h>

#include <cstdint>
#include <vector>

#include "sim/driver.h"

namespace gpumem::sim {
namespace {

bool is_granular(std::uint64_t value) { return value % kGranularity.count == 0; }
bool is_granular_size(std::uint64_t size) { return size > 0 && is_granular(size); }
bool is_power_of_two(std::uint64_t value) { return value > 0 && (value & (value - 1)) == 0; }

CUresult check_handle_types(unsigned types) {
  if (types == CU_MEM_HANDLE_TYPE_NONE || types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_SUCCESS;
  constexpr unsigned kKnown = 0xf;  // descriptor, win32, kmt, fabric
  return (types & ~kKnown) == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_properties(Call& driver, const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!driver->has_device(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (prop->win32HandleMetaData != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return check_handle_types(prop->requestedHandleTypes);
}

CUresult check_location(Call& driver, const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return driver->has_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

bool is_access(unsigned flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace
}  // namespace gpumem::sim

using namespace gpumem::sim;

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  Call driver;
  if (!driver) return driver.error();
  const bool is_option =
      option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (granularity == nullptr || !is_option) return CUDA_ERROR_INVALID_VALUE;
  const CUresult valid = check_properties(driver, prop);
  if (valid == CUDA_SUCCESS) *granularity = kGranularity.count;
  return valid;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (handle == nullptr || !is_granular_size(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_properties(driver, prop); valid != CUDA_SUCCESS) return valid;
  Extent* extent = nullptr;
  const CUresult result =
      driver->create_extent({.device = driver->device(prop->location.id),
                             .kind = Kind::kMemory,
                             .size = size,
                             .handle_types = static_cast<std::uint32_t>(prop->requestedHandleTypes)},
                            &extent);
  if (result != CUDA_SUCCESS) return result;
  extent->rdma_capable = prop->allocFlags.gpuDirectRDMACapable;
  *handle = extent->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call driver;
  if (!driver) return driver.error();
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --extent->handles;
  driver->handles->drop_if_unused(*extent);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(reinterpret_cast<CUdeviceptr>(address));
  if (handle == nullptr || found.mapping == nullptr || found.reservation->owner != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Extent* const extent = found.mapping->extent;
  ++extent->handles;
  *handle = extent->handle;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  Call driver;
  if (!driver) return driver.error();
  const Extent* const extent = driver->handles->find(handle);
  if (prop == nullptr || extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = {};
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(extent->handle_types);
  prop->location = {CU_MEM_LOCATION_TYPE_DEVICE, driver->ordinal(extent->device)};
  prop->allocFlags.gpuDirectRDMACapable = extent->rdma_capable;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || flags != 0 || type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_handle_types(type); valid != CUDA_SUCCESS) return valid;
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr || (extent->handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  gpumem::UniqueFd fd = duplicate(extent->fd.get());
  if (!fd.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  driver->table->mark_exported(extent->slot);
  extent->is_exported = true;
  *static_cast<int*>(out) = fd.release();
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        CUmemAllocationHandleType type) {
  Call driver;
  if (!driver) return driver.error();
  if (handle == nullptr || type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_handle_types(type); valid != CUDA_SUCCESS) return valid;
  // Duplicated first: what is identified is what is kept, whatever becomes of the caller's descriptor.
  gpumem::UniqueFd fd = duplicate(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
  const auto info = driver->table->identify(fd.get());
  if (!info || info->kind != Kind::kMemory) return CUDA_ERROR_INVALID_VALUE;
  if (driver->ordinal(info->device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  Extent& extent = driver->handles->add(
      info->slot, std::move(fd),
      {.device = info->device, .kind = info->kind, .size = info->size, .handle_types = info->handle_types},
      true);
  extent.handles = 1;
  *handle = extent.handle;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr /*hint*/,
                             unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (address == nullptr || !is_granular_size(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment != 0 && !is_power_of_two(alignment)) return CUDA_ERROR_INVALID_VALUE;
  return driver->space.reserve(size, std::max<std::uint64_t>(alignment, kGranularity.count), 0, address);
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  Call driver;
  if (!driver) return driver.error();
  return driver->space.unreserve(address, size, 0);
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (!is_granular(address) || !is_granular_size(size) || offset != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Extent* const extent = driver->handles->find(handle);
  return extent == nullptr ? CUDA_ERROR_INVALID_VALUE : driver->space.map(address, size, *extent);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  if (found.reservation == nullptr || found.reservation->owner != 0) return CUDA_ERROR_INVALID_VALUE;
  return driver->unmap(address, size);
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* desc, size_t count) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  if (found.reservation == nullptr || found.reservation->owner != 0) return CUDA_ERROR_INVALID_VALUE;
  if (desc == nullptr || count == 0 || count > kMaxDevices) return CUDA_ERROR_INVALID_VALUE;
  std::vector<AccessChange> changes;
  for (size_t i = 0; i < count; ++i) {
    if (!is_access(desc[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult valid = check_location(driver, desc[i].location); valid != CUDA_SUCCESS) return valid;
    changes.push_back({driver->device(desc[i].location.id), desc[i].flags});
  }
  return driver->space.set_access(address, size, changes);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_location(driver, *location); valid != CUDA_SUCCESS) return valid;
  const auto found = driver->space.find(address);
  if (found.mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = found.mapping->access[driver->device(location->id)];
  return CUDA_SUCCESS;
}
