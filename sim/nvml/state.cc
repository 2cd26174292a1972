// The devices' modes and sensors: constants, as of an H200 that idles. Calls that would set something are not
// defined: they are refused as not supported.
#include <nvml.h>

#include "nvml_calls.h"
#include "sim/machine/device_model.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kTemperature = 35;    // degrees Celsius
constexpr unsigned kIdlePower = 75'000;  // milliwatts
constexpr unsigned kLeastLimit = 200'000, kMostLimit = 700'000;
constexpr unsigned kLinkGeneration = 5, kLinkWidth = 16;
constexpr unsigned kVideoClockMhz = 1545;
constexpr unsigned kSamplingPeriod = 100'000;  // microseconds
constexpr unsigned long long kGpuIsIdle = 1;   // nvmlClocksEventReasonGpuIdle

/// The clocks never change; 0: no such one.
unsigned clock_of(nvmlClockType_t type) {
  switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM: return device_model::kCoreClockMhz;
    case NVML_CLOCK_MEM: return device_model::kMemoryClockMhz;
    case NVML_CLOCK_VIDEO: return kVideoClockMhz;
    default: return 0;
  }
}

nvmlReturn_t answer_clock(nvmlDevice_t device, nvmlClockType_t type, unsigned* clock) {
  return clock_of(type) != 0 ? answer_always(device, clock, clock_of(type)) : NVML_ERROR_INVALID_ARGUMENT;
}

/// 0: no such threshold on such a device.
unsigned threshold(nvmlTemperatureThresholds_t type) {
  switch (type) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: return 95;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: return 92;
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX: return 95;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX: return 87;
    default: return 0;
  }
}

}  // namespace

nvmlReturn_t api::nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer_always(device, mode, NVML_FEATURE_ENABLED);
}
nvmlReturn_t api::nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return answer_always(device, mode, NVML_COMPUTEMODE_DEFAULT);
}
nvmlReturn_t api::nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* current, unsigned int* pending) {
  return answer_always(device, current, NVML_DEVICE_MIG_DISABLE, pending, NVML_DEVICE_MIG_DISABLE);
}
nvmlReturn_t api::nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return answer_always(device, count, 0);
}
nvmlReturn_t api::nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* is_mig) {
  return answer_always(device, is_mig, 0);
}
nvmlReturn_t api::nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer_always(device, mode, NVML_FEATURE_DISABLED);
}
nvmlReturn_t api::nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t* active) {
  return answer_always(device, active, NVML_FEATURE_DISABLED);
}
nvmlReturn_t api::nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer_always(device, mode, NVML_FEATURE_DISABLED);
}
nvmlReturn_t api::nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t* mode) {
  return answer_always(device, mode, NVML_GPU_VIRTUALIZATION_MODE_NONE);
}
nvmlReturn_t api::nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t* state) {
  return answer_always(device, state, NVML_PSTATE_0);
}

nvmlReturn_t api::nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  return answer_always(device, utilization, nvmlUtilization_t{});
}
nvmlReturn_t api::nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int* percent,
                                                  unsigned int* period) {
  return answer_always(device, percent, 0, period, kSamplingPeriod);
}
nvmlReturn_t api::nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int* percent,
                                                  unsigned int* period) {
  return answer_always(device, percent, 0, period, kSamplingPeriod);
}

nvmlReturn_t api::nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* power) {
  return answer_always(device, power, kIdlePower);
}
nvmlReturn_t api::nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer_always(device, mode, NVML_FEATURE_ENABLED);
}
nvmlReturn_t api::nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int* limit) {
  return answer_always(device, limit, kMostLimit);
}
nvmlReturn_t api::nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int* limit) {
  return answer_always(device, limit, kMostLimit);
}
nvmlReturn_t api::nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* limit) {
  return answer_always(device, limit, kMostLimit);
}
nvmlReturn_t api::nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int* least,
                                                               unsigned int* most) {
  return answer_always(device, least, kLeastLimit, most, kMostLimit);
}

nvmlReturn_t api::nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                           unsigned int* degrees) {
  return sensor == NVML_TEMPERATURE_GPU ? answer_always(device, degrees, kTemperature)
                                        : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t api::nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, nvmlTemperatureThresholds_t type,
                                                    unsigned int* degrees) {
  return threshold(type) != 0 ? answer_always(device, degrees, threshold(type)) : NVML_ERROR_NOT_SUPPORTED;
}
/// Such devices are cooled from outside.
nvmlReturn_t api::nvmlDeviceGetFanSpeed(nvmlDevice_t /*device*/, unsigned int* /*percent*/) {
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t api::nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return answer_clock(device, type, clock);
}
nvmlReturn_t api::nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int* clock) {
  return answer_clock(device, type, clock);
}
nvmlReturn_t api::nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
                                     unsigned int* clock) {
  return id < NVML_CLOCK_ID_COUNT ? answer_clock(device, type, clock) : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t api::nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                            unsigned long long* reasons) {
  return answer_always(device, reasons, kGpuIsIdle);
}
#ifdef HAVE_nvmlDeviceGetCurrentClocksEventReasons
nvmlReturn_t api::nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return answer_always(device, reasons, kGpuIsIdle);
}
#endif

nvmlReturn_t api::nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  return answer_always(device, generation, kLinkGeneration);
}
#ifdef HAVE_nvmlDeviceGetGpuMaxPcieLinkGeneration
nvmlReturn_t api::nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  return answer_always(device, generation, kLinkGeneration);
}
#endif
nvmlReturn_t api::nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
  return answer_always(device, generation, kLinkGeneration);
}
nvmlReturn_t api::nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return answer_always(device, width, kLinkWidth);
}
nvmlReturn_t api::nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
  return answer_always(device, width, kLinkWidth);
}
nvmlReturn_t api::nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t /*counter*/,
                                              unsigned int* kilobytes) {
  return answer_always(device, kilobytes, 0);
}

}  // namespace gpumem::sim
