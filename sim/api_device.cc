// Initialisation, version, devices.

#include <cuda.h>
#include <algorithm>
#include <cstring>
#include <map>

#include "calls.h"
#include "sim/driver.h"

namespace gpumem::sim {
namespace {

constexpr int kDriverVersion = 13000;
constexpr char kName[] = "gpumem simulated GPU";

/// What differs from 0; the figures are those of an H200.
const std::map<int, int>& attributes() {
  static const auto* const values = new std::map<int, int>{
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
  };
  return *values;
}

}  // namespace

CUresult api::cuInit(unsigned int flags) {
  return flags == 0 ? Driver::get().init() : CUDA_ERROR_INVALID_VALUE;
}

CUresult api::cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
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
  const size_t kept = std::min(static_cast<size_t>(length), sizeof kName) - 1;
  std::memcpy(name, kName, kept);
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
  if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto found = attributes().find(attribute);
  *value = found == attributes().end() ? 0 : found->second;
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) *value = static_cast<int>(driver->device(device)) + 1;
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
