// Virtual memory management: physical extents and sharing them by descriptor.
#include <cuda.h>

#include <cstdint>

#include "calls.h"
#include "sim/driver/locations.h"

namespace gpumem::sim {

CUresult api::cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
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

CUresult api::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                          unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (handle == nullptr || !is_granular_size(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_properties(driver, prop); valid != CUDA_SUCCESS) return valid;
  Extent* extent = nullptr;
  Table::Request request{.device = 0,
                         .kind = Kind::kMemory,
                         .size = size,
                         .handle_types = static_cast<std::uint32_t>(prop->requestedHandleTypes),
                         .numa_node = node_of(prop->location)};
  resolve(driver, prop->location, &request.device);
  const CUresult result = driver->create_extent(request, &extent);
  if (result != CUDA_SUCCESS) return result;
  extent->rdma_capable = prop->allocFlags.gpuDirectRDMACapable;
  *handle = extent->handle;
  return CUDA_SUCCESS;
}

CUresult api::cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call driver;
  if (!driver) return driver.error();
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --extent->handles;
  driver->handles->drop_if_unused(*extent);
  return CUDA_SUCCESS;
}

CUresult api::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(reinterpret_cast<CUdeviceptr>(address));
  if (handle == nullptr || found.mapping == nullptr || found.reservation->use != Use::kProgram)
    return CUDA_ERROR_INVALID_VALUE;
  Extent* const extent = found.mapping->extent;
  ++extent->handles;
  *handle = extent->handle;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                     CUmemGenericAllocationHandle handle) {
  Call driver;
  if (!driver) return driver.error();
  const Extent* const extent = driver->handles->find(handle);
  if (prop == nullptr || extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = {};
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(extent->handle_types);
  prop->location = location_of(driver, *extent);
  prop->allocFlags.gpuDirectRDMACapable = extent->rdma_capable;
  return CUDA_SUCCESS;
}

CUresult api::cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || flags != 0 || type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_handle_types(type); valid != CUDA_SUCCESS) return valid;
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr || (extent->handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  gpumem::UniqueFd fd = duplicate(extent->fd.get());
  if (!fd.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!driver->table->mark_exported(extent->slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  extent->is_exported = true;
  *static_cast<int*>(out) = fd.release();
  return CUDA_SUCCESS;
}

CUresult api::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                             CUmemAllocationHandleType type) {
  Call driver;
  if (!driver) return driver.error();
  if (handle == nullptr || type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_handle_types(type); valid != CUDA_SUCCESS) return valid;
  // Duplicated first: what is identified is what is kept, whatever becomes of the caller's descriptor.
  gpumem::UniqueFd fd = duplicate(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
  const auto info = driver->table->identify(fd.get());
  if (!info || info->kind != Kind::kMemory) return CUDA_ERROR_INVALID_VALUE;
  if (info->device != layout::kHost && driver->ordinal(info->device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  const Table::Request request{.device = info->device,
                               .kind = info->kind,
                               .size = info->size,
                               .handle_types = info->handle_types,
                               .numa_node = info->numa_node};
  Extent& extent = driver->handles->add(info->slot, std::move(fd), request, true);
  extent.handles = 1;
  *handle = extent.handle;
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
