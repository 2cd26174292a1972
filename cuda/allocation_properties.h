#pragma once
#include "cuda/headers.h"

namespace gpumem::cuda {

/// What every extent of ours is: pinned memory of one device that can be passed on as a file descriptor.
inline CUmemAllocationProp allocation_properties(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

}  // namespace gpumem::cuda
