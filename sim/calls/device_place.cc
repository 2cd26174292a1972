// Where a device sits, and what devices are to each other.
#include <cuda.h>

#include <cstring>
#include <string>

#include "calls.h"
#include "sim/driver/driver.h"
#include "sim/machine/device_model.h"

namespace gpumem::sim {

CUresult api::cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (id == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::string text = device_model::pci_bus_id(driver->device(device));
  if (static_cast<std::size_t>(length) <= text.size()) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(id, text.c_str(), text.size() + 1);
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  Call driver;
  if (!driver) return driver.error();
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto index = device_model::device_at(id);
  const int ordinal = index ? driver->ordinal(*index) : -1;
  if (ordinal < 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

/// Windows alone has such identifiers.
CUresult api::cuDeviceGetLuid(char* luid, unsigned int* nodes, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (luid == nullptr || nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return driver->has_device(device) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_DEVICE;
}

/// All devices reach each other equally well; arrays, which are not simulated, do not.
CUresult api::cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                      CUdevice to) {
  Call driver;
  if (!driver) return driver.error();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(from) || !driver->has_device(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = 1; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
    case 5: *value = 0; return CUDA_SUCCESS;  // ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

/// Only clients of MPS can be given a part of the multiprocessors.
CUresult api::cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (supported == nullptr || static_cast<unsigned>(type) >= CU_EXEC_AFFINITY_TYPE_MAX) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *supported = 0;
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
