#pragma once
// NVIDIA's headers, and what the older ones lack: every difference between header versions is bridged here.
// Only types and constants are used; the functions are found at run time (library.h).
#include <cuda.h>
#include <nvml.h>

#include <array>

static_assert(CUDA_VERSION >= 11080, "CUDA headers 11.8 or newer are needed");

namespace gpumem::cuda {

// Fabric handles came with CUDA 12.3.
inline constexpr unsigned kFabricHandleType = 8;  ///< CU_MEM_HANDLE_TYPE_FABRIC
inline constexpr int kFabricAttribute = 128;      ///< CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
// Extents on a NUMA node of the host came with CUDA 12.2, their descriptors with 12.6.
inline constexpr int kHostNodeLocation = 3;           ///< CU_MEM_LOCATION_TYPE_HOST_NUMA
inline constexpr int kHostNodeExtentAttribute = 141;  ///< .._HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
/// CUmemFabricHandle. Names memory for processes of this machine, and of those that NVLink connects it with.
using FabricHandle = std::array<char, 64>;

}  // namespace gpumem::cuda
