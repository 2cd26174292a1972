#pragma once
#include "cuda/headers.h"

namespace gpumem::cuda {

/// How an extent can be passed on.
enum class HandleTypes { kDescriptor, kDescriptorAndFabric };

/// Whether network cards and disks can reach an extent by themselves (GPUDirect RDMA), as they can what
/// cuMemAlloc gives.
enum class DirectAccess { kNo, kYes };

/// The properties of every extent: pinned memory of one device that can be passed on as a file descriptor.
inline CUmemAllocationProp allocation_properties(int ordinal, HandleTypes types = HandleTypes::kDescriptor,
                                                 DirectAccess direct = DirectAccess::kNo) {
  const unsigned fabric = types == HandleTypes::kDescriptorAndFabric ? kFabricHandleType : 0;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | fabric);
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  properties.allocFlags.gpuDirectRDMACapable = direct == DirectAccess::kYes ? 1 : 0;
  return properties;
}

}  // namespace gpumem::cuda
