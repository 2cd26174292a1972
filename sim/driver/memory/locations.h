#pragma once
#include <cuda.h>

#include <cstdint>

#include "sim/driver/driver.h"

namespace gpumem::sim {

// Numbers, for CUDA 11.8, which lacks the names.
inline constexpr unsigned kFabricHandle = 8;    ///< CU_MEM_HANDLE_TYPE_FABRIC
inline constexpr int kManagedAllocation = 2;    ///< CU_MEM_ALLOCATION_TYPE_MANAGED
inline constexpr int kFabricIsSupported = 128;  ///< CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED

inline bool is_granular(std::uint64_t value) { return value % kGranularity.count == 0; }
inline bool is_granular_size(std::uint64_t size) { return size > 0 && is_granular(size); }

/// Whether `location` is the host's memory, of any node.
bool is_host(const CUmemLocation& location);
/// The device of the machine, or layout::kHost, that `location` is. All nodes of the host are one here.
/// Errors  CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_INVALID_DEVICE.
CUresult resolve(Call& driver, const CUmemLocation& location, std::uint32_t* out);

/// Whether extents of such properties can be made.
CUresult check_properties(Call& driver, const CUmemAllocationProp* prop);
/// Whether memory can be passed on in these ways, `fabric` being one of them or not.
/// Errors  CUDA_ERROR_NOT_SUPPORTED; CUDA_ERROR_INVALID_VALUE: no such type.
CUresult check_handle_types(unsigned types, bool fabric = false);
/// Whether a managed pool may prefer this location: a device, the host, a node of it, or none.
/// Errors  CUDA_ERROR_INVALID_VALUE.
CUresult check_managed_location(Call& driver, const CUmemLocation& location);
/// The node of the host that `location` names, as the machine's table keeps it.
std::int32_t node_of(const CUmemLocation& location);
/// Where an extent lies, as its properties tell.
CUmemLocation location_of(Call& driver, const Extent& extent);

}  // namespace gpumem::sim
