#include "sim/driver/memory/locations.h"

#include <unistd.h>

#include <string>

namespace gpumem::sim {
namespace {

constexpr std::int32_t kAnyNode = -1;

bool has_node(int node) {
  const std::string path = "/sys/devices/system/node/node" + std::to_string(node);
  return node == 0 || (node > 0 && ::access(path.c_str(), F_OK) == 0);
}

/// Additional checks for extents of the host's memory.
CUresult check_host_properties([[maybe_unused]] const CUmemAllocationProp& prop) {
#if CUDA_VERSION >= 12020
  const bool is_shareable = prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  switch (prop.location.type) {
    case CU_MEM_LOCATION_TYPE_HOST: return is_shareable ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return has_node(prop.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
#else
  return CUDA_ERROR_NOT_SUPPORTED;
#endif
}

}  // namespace

bool is_host([[maybe_unused]] const CUmemLocation& location) {
#if CUDA_VERSION >= 12020
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
#else
  return false;
#endif
}

CUresult resolve(Call& driver, const CUmemLocation& location, std::uint32_t* out) {
  if (location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  if (!is_host(location) && location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_host(location) && !driver->has_device(location.id)) return CUDA_ERROR_INVALID_DEVICE;
  *out = is_host(location) ? layout::kHost : driver->device(location.id);
  return CUDA_SUCCESS;
}

CUresult check_handle_types(unsigned types, bool fabric) {
  const unsigned offered = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (fabric ? kFabricHandle : 0);
  if ((types & ~offered) == 0) return CUDA_SUCCESS;
  constexpr unsigned kKnown = 0xf;  // descriptor, win32, kmt, fabric
  return (types & ~kKnown) == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult check_properties(Call& driver, const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (is_host(prop->location)) {
    if (const CUresult valid = check_host_properties(*prop); valid != CUDA_SUCCESS) return valid;
  }
  std::uint32_t device = 0;
  if (const CUresult known = resolve(driver, prop->location, &device); known != CUDA_SUCCESS) return known;
  if (prop->win32HandleMetaData != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return check_handle_types(prop->requestedHandleTypes, driver->fabric && !is_host(prop->location));
}

CUresult check_managed_location(Call& driver, const CUmemLocation& location) {
  switch (static_cast<int>(location.type)) {
    case Whereabouts::kNowhere:
    case Whereabouts::kHost: return CUDA_SUCCESS;
    case Whereabouts::kDevice:
      return driver->has_device(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case Whereabouts::kHostNode: return has_node(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

std::int32_t node_of(const CUmemLocation& location) {
#if CUDA_VERSION >= 12020
  return location.type == CU_MEM_LOCATION_TYPE_HOST ? kAnyNode : location.id;
#else
  return location.id;
#endif
}

CUmemLocation location_of(Call& driver, const Extent& extent) {
#if CUDA_VERSION >= 12020
  if (extent.device == layout::kHost && extent.numa_node == kAnyNode) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  if (extent.device == layout::kHost) return {CU_MEM_LOCATION_TYPE_HOST_NUMA, extent.numa_node};
#endif
  return {CU_MEM_LOCATION_TYPE_DEVICE, driver->ordinal(extent.device)};
}

}  // namespace gpumem::sim
