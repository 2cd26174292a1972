// Pools and their memory for other processes.
#include <cuda.h>

#include <cstdint>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/memory/locations.h"
#include "sim/machine/extent_file.h"

namespace gpumem::sim {
namespace {

CUresult check_type(CUmemAllocationHandleType type, unsigned long long flags) {
  if (flags != 0 || type == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
  return check_handle_types(type);
}

}  // namespace

CUresult api::cuMemPoolExportToShareableHandle(void* out, CUmemoryPool named, CUmemAllocationHandleType type,
                                               unsigned long long flags) {
  return with_pool(named, [&](Call& driver, Pool& pool) {
    if (const CUresult valid = check_type(type, flags); valid != CUDA_SUCCESS) return valid;
    const bool is_shareable = !pool.is_imported && (pool.handle_types & type) != 0;
    if (out == nullptr || !is_shareable) return CUDA_ERROR_INVALID_VALUE;
    UniqueFd fd = describe_pool({.id = pool.id,
                                 .device = pool.device,
                                 .numa_node = node_of(pool.location),
                                 .handle_types = pool.handle_types},
                                driver->table->folder());
    if (!fd.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(out) = fd.release();
    pool.is_exported = true;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* os_handle,
                                                 CUmemAllocationHandleType type, unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (const CUresult valid = check_type(type, flags); valid != CUDA_SUCCESS) return valid;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  const auto shared = read_pool(fd, driver->table->folder());
  if (!shared) return CUDA_ERROR_INVALID_VALUE;
  const bool is_host = shared->device == layout::kHost;
  if (!is_host && driver->ordinal(shared->device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  Extent like;
  like.device = shared->device;
  like.numa_node = shared->numa_node;
  const Pool& pool = driver->pools.create({.location = location_of(driver, like),
                                           .device = shared->device,
                                           .handle_types = shared->handle_types,
                                           .id = shared->id,
                                           .is_imported = true});
  *out = handle<CUmemoryPool>(pool.number);
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const Pools::Found found = driver->pools.find_block(address);
  const bool is_shareable = found.pool != nullptr && found.start == address && found.pool->is_exported;
  if (out == nullptr || !is_shareable) return CUDA_ERROR_INVALID_VALUE;
  const auto place = driver->space.find(address);
  Extent& extent = *place.mapping->extent;
  driver->table->mark_exported(extent.slot);
  extent.is_exported = true;
  *out = pack({.pool = found.pool->id,
               .slot = extent.slot,
               .offset = address - place.range_base,
               .size = found.size});
  return CUDA_SUCCESS;
}

CUresult api::cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool named, CUmemPoolPtrExportData* data) {
  return with_pool(named, [&](Call& driver, Pool& pool) {
    if (out == nullptr || data == nullptr || !pool.is_imported) return CUDA_ERROR_INVALID_VALUE;
    const auto pointer = unpack(*data);
    return pointer ? driver->pools.import(pool, *pointer, out) : CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace gpumem::sim
