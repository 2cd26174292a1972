// Initialisation, version, devices.

#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "calls.h"
#include "sim/driver/devices.h"
#include "sim/driver/driver.h"
#include "sim/driver/memory/locations.h"
#include "sim/machine/device_model.h"

namespace gpumem::sim {

CUresult api::cuInit(unsigned int flags) {
  return flags == 0 ? Driver::get().init() : CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = device_model::kCudaVersion;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetCount(int* count) {
  Call driver;
  if (!driver) return driver.error();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = driver->device_count();
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGet(CUdevice* device, int ordinal) {
  Call driver;
  if (!driver) return driver.error();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetName(char* name, int length, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const size_t kept = std::min(static_cast<size_t>(length), sizeof device_model::kName) - 1;
  std::memcpy(name, device_model::kName, kept);
  name[kept] = '\0';
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Uuid bytes = driver->table->uuid(driver->device(device));
  std::memcpy(uuid->bytes, bytes.data(), bytes.size());
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return api::cuDeviceGetUuid_v2(uuid, device); }

CUresult api::cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = driver->table->total(driver->device(device));
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  const int number = attribute;
  const bool is_known = number > 0 && number < std::max<int>(CU_DEVICE_ATTRIBUTE_MAX, kFabricIsSupported + 1);
  if (value == nullptr || !is_known) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (number == kFabricIsSupported) {
    *value = driver->fabric ? 1 : 0;
    return CUDA_SUCCESS;
  }
  *value = device_attribute(attribute, driver->device(device));
  return CUDA_SUCCESS;
}

CUresult api::cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  Call driver;
  if (!driver) return driver.error();
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device) || !driver->has_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
