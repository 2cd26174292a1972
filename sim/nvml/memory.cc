// The devices' memory in figures.
#include <nvml.h>

#include <algorithm>

#include "nvml_calls.h"
#include "sim/machine/device_model.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {

/// This form counts what is withheld from everybody as used.
nvmlReturn_t api::nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return answer(device, memory, [](const NvmlCall& nvml, std::uint32_t i) {
    const std::uint64_t total = nvml->total(i), free = nvml->free(i);
    return nvmlMemory_t{.total = total, .free = free, .used = total - free};
  });
}

nvmlReturn_t api::nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory != nullptr && memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return answer(device, memory, [](const NvmlCall& nvml, std::uint32_t i) {
    const std::uint64_t total = nvml->total(i), used = nvml->used(i);
    const std::uint64_t free = std::min(nvml->free(i), total - used);
    return nvmlMemory_v2_t{.version = nvmlMemory_v2,
                           .total = total,
                           .reserved = total - free - used,
                           .free = free,
                           .used = used};
  });
}

/// The window is as large as the memory, and the host's processes do without it.
nvmlReturn_t api::nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t* memory) {
  return answer(device, memory, [](const NvmlCall& nvml, std::uint32_t i) {
    const std::uint64_t total = nvml->total(i);
    return nvmlBAR1Memory_t{.bar1Total = total, .bar1Free = total, .bar1Used = 0};
  });
}

nvmlReturn_t api::nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int* bits) {
  return answer_always(device, bits, device_model::kMemoryBusBits);
}

nvmlReturn_t api::nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* current,
                                       nvmlEnableState_t* pending) {
  return answer_always(device, current, NVML_FEATURE_ENABLED, pending, NVML_FEATURE_ENABLED);
}

/// No bit is ever lost.
nvmlReturn_t api::nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t /*error*/,
                                              nvmlEccCounterType_t /*counter*/, unsigned long long* count) {
  return answer_always(device, count, 0);
}
nvmlReturn_t api::nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int* corrected,
                                            unsigned int* uncorrected, unsigned int* pending,
                                            unsigned int* failed) {
  const nvmlReturn_t result = answer_always(device, corrected, 0, uncorrected, 0);
  return result == NVML_SUCCESS ? answer_always(device, pending, 0, failed, 0) : result;
}

}  // namespace gpumem::sim
