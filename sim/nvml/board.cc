// The hardware of a device: its board, its place on the bus, its parts.
#include <nvml.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "nvml_calls.h"
#include "sim/machine/device_model.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kCopyEngines = 3, kDecoders = 7, kJpegDecoders = 7, kFlowAccelerators = 1;
constexpr unsigned kDisplayController = 3, k3dController = 2;  // PCI classes
constexpr std::uint64_t kBytesPerMib = 1U << 20;
constexpr char kPartNumber[] = "900-00000-0000-000";
constexpr char kImageVersion[] = "G520.0000.00.00";
constexpr char kOemVersion[] = "2.1", kEccVersion[] = "7.16";
constexpr unsigned kConfigurationChecksum = 0x47504d53;

/// 13 digits, of the device's UUID.
std::string serial_of(const Uuid& uuid) {
  constexpr std::uint64_t kDigits = 10'000'000'000'000;
  std::uint64_t number = 0;
  for (const std::uint8_t byte : uuid) number = (number << 4) ^ byte;
  char text[16];
  std::snprintf(text, sizeof text, "%013llu", static_cast<unsigned long long>(number % kDigits));
  return text;
}

nvmlReturn_t put_text(nvmlDevice_t device, std::string_view text, char* out, unsigned length) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  return nvml.has(device) ? put(text, out, length) : NVML_ERROR_INVALID_ARGUMENT;
}

}  // namespace

nvmlReturn_t api::nvmlDeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device)) return NVML_ERROR_INVALID_ARGUMENT;
  return put(serial_of(nvml->uuid(NvmlCall::index_of(device))), serial, length);
}
nvmlReturn_t api::nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char* number, unsigned int length) {
  return put_text(device, kPartNumber, number, length);
}
nvmlReturn_t api::nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char* version, unsigned int length) {
  return put_text(device, kImageVersion, version, length);
}
nvmlReturn_t api::nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object, char* version,
                                              unsigned int length) {
  if (object == NVML_INFOROM_OEM) return put_text(device, kOemVersion, version, length);
  if (object == NVML_INFOROM_ECC) return put_text(device, kEccVersion, version, length);
  return NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t api::nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device, unsigned int* checksum) {
  return answer_always(device, checksum, kConfigurationChecksum);
}
nvmlReturn_t api::nvmlDeviceValidateInforom(nvmlDevice_t device) {
  unsigned checksum = 0;
  return api::nvmlDeviceGetInforomConfigurationChecksum(device, &checksum);
}
#ifdef HAVE_nvmlDeviceGetLastBBXFlushTime
/// Nothing was ever recorded there.
nvmlReturn_t api::nvmlDeviceGetLastBBXFlushTime(nvmlDevice_t /*device*/, unsigned long long* /*time*/,
                                                unsigned long* /*duration*/) {
  return NVML_ERROR_NOT_READY;
}
#endif

#ifdef HAVE_nvmlDeviceGetPciInfoExt
nvmlReturn_t api::nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* info) {
  if (info != nullptr && info->version != nvmlPciInfoExt_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return answer(device, info, [](const NvmlCall&, std::uint32_t index) {
    nvmlPciInfoExt_t known{};
    known.version = nvmlPciInfoExt_v1;
    known.bus = device_model::pci_bus(index);
    known.pciDeviceId = device_model::kPciDevice;
    known.pciSubSystemId = device_model::kPciSubsystem;
    known.baseClass = kDisplayController;
    known.subClass = k3dController;
    device_model::pci_bus_id(index, 8).copy(known.busId, sizeof known.busId - 1);
    return known;
  });
}
#endif
nvmlReturn_t api::nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int* count) {
  return answer_always(device, count, 0);
}
#ifdef HAVE_nvmlDeviceGetModuleId
nvmlReturn_t api::nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int* module) {
  return answer(device, module, [](const NvmlCall&, std::uint32_t index) { return index; });
}
#endif

/// The whole device: it is not divided into instances.
nvmlReturn_t api::nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t* attributes) {
  return answer(device, attributes, [](const NvmlCall& nvml, std::uint32_t index) {
    nvmlDeviceAttributes_t known{};
    known.multiprocessorCount = device_model::kMultiprocessors;
    known.sharedCopyEngineCount = kCopyEngines;
    known.sharedDecoderCount = kDecoders;
    known.sharedJpegCount = kJpegDecoders;
    known.sharedOfaCount = kFlowAccelerators;
    known.memorySizeMB = nvml->total(index) / kBytesPerMib;
    return known;
  });
}
#ifdef HAVE_nvmlDeviceGetC2cModeInfoV
nvmlReturn_t api::nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t* info) {
  return answer_always(device, info, {});
}
#endif
#ifdef HAVE_nvmlDeviceGetAddressingMode
/// The host's own memory cannot be used by its host addresses.
nvmlReturn_t api::nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t* mode) {
  if (mode != nullptr && mode->version != nvmlDeviceAddressingMode_v1)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return answer_always(device, mode, {nvmlDeviceAddressingMode_v1, NVML_DEVICE_ADDRESSING_MODE_NONE});
}
#endif
#ifdef HAVE_nvmlDeviceGetRepairStatus
nvmlReturn_t api::nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t* status) {
  if (status != nullptr && status->version != nvmlRepairStatus_v1)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return answer_always(device, status, {nvmlRepairStatus_v1, 0, 0});
}
#endif

// What such devices do not have.
#ifdef HAVE_nvmlDeviceGetNumaNodeId
nvmlReturn_t api::nvmlDeviceGetNumaNodeId(nvmlDevice_t /*device*/, unsigned int* /*node*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}
#endif
nvmlReturn_t api::nvmlDeviceGetNvLinkState(nvmlDevice_t /*device*/, unsigned int /*link*/,
                                           nvmlEnableState_t* /*active*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}
#ifdef HAVE_nvmlDeviceGetDriverModel_v2
nvmlReturn_t api::nvmlDeviceGetDriverModel_v2(nvmlDevice_t /*device*/, nvmlDriverModel_t* /*current*/,
                                              nvmlDriverModel_t* /*pending*/) {
  return NVML_ERROR_NOT_SUPPORTED;  // as on all systems but Windows
}
#endif
nvmlReturn_t api::nvmlDeviceGetDriverModel(nvmlDevice_t /*device*/, nvmlDriverModel_t* /*current*/,
                                           nvmlDriverModel_t* /*pending*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace gpumem::sim
