// The older calls that gather attributes.
#include <cuda.h>

#include "calls.h"
#include "sim/driver/devices.h"
#include "sim/driver/driver.h"
#include "sim/machine/device_model.h"

namespace gpumem::sim {

CUresult api::cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *major = device_model::kComputeMajor;
  *minor = device_model::kComputeMinor;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto value = [index = driver->device(device)](CUdevice_attribute attribute) {
    return device_attribute(attribute, index);
  };
  *properties = {
      .maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      .maxThreadsDim = {value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                        value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                        value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
      .maxGridSize = {value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                      value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
      .sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      .totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
      .SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
      .regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      .clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      .textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
  };
  return CUDA_SUCCESS;
}

/// Elements of every size get the answer for elements of four bytes.
CUresult api::cuDeviceGetTexture1DLinearMaxWidth(size_t* elements, CUarray_format format, unsigned channels,
                                                 CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  const bool is_known = format > 0 && (channels == 1 || channels == 2 || channels == 4);
  if (elements == nullptr || !is_known) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *elements = static_cast<size_t>(
      device_attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, driver->device(device)));
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
