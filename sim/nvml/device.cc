// The machine's devices, whatever CUDA_VISIBLE_DEVICES says: how to find them and what they are.
#include <nvml.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "nvml_calls.h"
#include "sim/machine/device_model.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kCoresPerMultiprocessor = 128;
constexpr std::string_view kUuidPrefix = "GPU-";  // which the real call can do without

nvmlPciInfo_t pci_info(std::uint32_t index) {
  nvmlPciInfo_t info{};
  device_model::pci_bus_id(index).copy(info.busIdLegacy, sizeof info.busIdLegacy - 1);
  info.bus = device_model::pci_bus(index);
  info.pciDeviceId = device_model::kPciDevice;
  info.pciSubSystemId = device_model::kPciSubsystem;
  device_model::pci_bus_id(index, 8).copy(info.busId, sizeof info.busId - 1);
  return info;
}

/// The older forms end before `busId`: what lies there is not theirs.
nvmlReturn_t put_old_pci_info(nvmlDevice_t device, nvmlPciInfo_t* out) {
  nvmlPciInfo_t info{};
  const nvmlReturn_t result =
      answer(device, &info, [](const NvmlCall&, std::uint32_t index) { return pci_info(index); });
  if (result != NVML_SUCCESS) return result;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::memcpy(out, &info, offsetof(nvmlPciInfo_t, busId));
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t api::nvmlDeviceGetCount_v2(unsigned int* count) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = nvml->device_count();
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlDeviceGetCount(unsigned int* count) { return api::nvmlDeviceGetCount_v2(count); }

nvmlReturn_t api::nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (device == nullptr || index >= nvml->device_count()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = NvmlCall::handle_of(index);
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return api::nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t api::nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (std::uint32_t i = 0; i < nvml->device_count(); ++i) {
    const std::string own = to_string(nvml->uuid(i));
    if (own != uuid && own.substr(kUuidPrefix.size()) != uuid) continue;
    *device = NvmlCall::handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t api::nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (id == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto index = device_model::device_at(id);
  if (!index || *index >= nvml->device_count()) return NVML_ERROR_NOT_FOUND;
  *device = NvmlCall::handle_of(*index);
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* device) {
  return api::nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

nvmlReturn_t api::nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  return nvml.has(device) ? put(device_model::kName, name, length) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t api::nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device)) return NVML_ERROR_INVALID_ARGUMENT;
  return put(to_string(nvml->uuid(NvmlCall::index_of(device))), uuid, length);
}

nvmlReturn_t api::nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return answer(device, index, [](const NvmlCall&, std::uint32_t i) { return i; });
}
nvmlReturn_t api::nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) {
  return answer(device, minor, [](const NvmlCall&, std::uint32_t i) { return i; });
}
nvmlReturn_t api::nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int* board) {
  return answer(device, board,
                [](const NvmlCall&, std::uint32_t i) { return device_model::pci_bus(i) << 8; });
}

nvmlReturn_t api::nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return answer(device, info, [](const NvmlCall&, std::uint32_t index) { return pci_info(index); });
}
nvmlReturn_t api::nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return put_old_pci_info(device, info);
}
nvmlReturn_t api::nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* info) {
  return put_old_pci_info(device, info);
}

nvmlReturn_t api::nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t* brand) {
  return answer_always(device, brand, NVML_BRAND_NVIDIA);
}
nvmlReturn_t api::nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* architecture) {
  constexpr nvmlDeviceArchitecture_t kHopper = 9;  // older headers do not name it
  return answer_always(device, architecture, kHopper);
}
nvmlReturn_t api::nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return answer_always(device, major, device_model::kComputeMajor, minor, device_model::kComputeMinor);
}
nvmlReturn_t api::nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int* cores) {
  return answer_always(device, cores, device_model::kMultiprocessors * kCoresPerMultiprocessor);
}

}  // namespace gpumem::sim
