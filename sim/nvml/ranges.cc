// The ranges of a device's sensors and clocks, and later forms of questions. The values are in `state.cc`;
// they never change.
#include <nvml.h>

#include <algorithm>
#include <chrono>

#include "nvml_calls.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned long long kReasons =
    nvmlClocksThrottleReasonGpuIdle | nvmlClocksThrottleReasonApplicationsClocksSetting |
    nvmlClocksThrottleReasonSwPowerCap | nvmlClocksThrottleReasonHwSlowdown;

unsigned threshold_of(nvmlDevice_t device, nvmlTemperatureThresholds_t type) {
  unsigned degrees = 0;
  (void)api::nvmlDeviceGetTemperatureThreshold(device, type, &degrees);
  return degrees;
}
unsigned temperature_of(nvmlDevice_t device) {
  unsigned degrees = 0;
  (void)api::nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &degrees);
  return degrees;
}

/// The figures that are counted, all of which stand at zero: nothing is sent, and no energy metered.
bool is_counted(unsigned field) {
  switch (field) {
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
#ifdef NVML_FI_DEV_PCIE_COUNT_TX_BYTES
    case NVML_FI_DEV_PCIE_COUNT_TX_BYTES:
    case NVML_FI_DEV_PCIE_COUNT_RX_BYTES:
#endif
      return true;
    default: return false;
  }
}

long long microseconds_now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

#ifdef HAVE_nvmlDeviceGetTemperatureV
nvmlReturn_t api::nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  if (temperature == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  unsigned degrees = 0;
  const nvmlReturn_t result = api::nvmlDeviceGetTemperature(device, temperature->sensorType, &degrees);
  if (result == NVML_SUCCESS) temperature->temperature = static_cast<int>(degrees);
  return result;
}
#endif
#ifdef HAVE_nvmlDeviceGetMarginTemperature
/// To the slowing down.
nvmlReturn_t api::nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t* margin) {
  if (margin != nullptr && margin->version != nvmlMarginTemperature_v1)
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const unsigned slow = threshold_of(device, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
  return answer_always(device, margin,
                       {nvmlMarginTemperature_v1, static_cast<int>(slow - temperature_of(device))});
}
#endif
/// There is one sensor, the device's own.
nvmlReturn_t api::nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int sensor,
                                               nvmlGpuThermalSettings_t* settings) {
  if (sensor != 0 && sensor != NVML_THERMAL_TARGET_ALL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlGpuThermalSettings_t known{};
  known.count = 1;
  known.sensor[0] = {NVML_THERMAL_CONTROLLER_GPU_INTERNAL, 0,
                     static_cast<int>(threshold_of(device, NVML_TEMPERATURE_THRESHOLD_GPU_MAX)),
                     static_cast<int>(temperature_of(device)), NVML_THERMAL_TARGET_GPU};
  return answer_always(device, settings, known);
}
#ifdef HAVE_nvmlDeviceGetNumFans
nvmlReturn_t api::nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int* fans) {
  return answer_always(device, fans, 0);
}
#endif

/// `size`  of the array, in bytes. The rest of it is filled with unknown ones.
nvmlReturn_t api::nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t* states,
                                                          unsigned int size) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || states == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::size_t room = size / sizeof *states;
  if (room == 0) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::fill_n(states, room, NVML_PSTATE_UNKNOWN);
  states[0] = NVML_PSTATE_0;
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t* info) {
  constexpr unsigned kKnownUnits = 4;  // graphics, memory, video, bus
  nvmlGpuDynamicPstatesInfo_t idle{};
  for (unsigned i = 0; i < kKnownUnits; ++i) idle.utilization[i].bIsPresent = 1;
  return answer_always(device, info, idle);
}
/// The clocks never change.
nvmlReturn_t api::nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type,
                                                   nvmlPstates_t state, unsigned int* least,
                                                   unsigned int* most) {
  if (state != NVML_PSTATE_0 || least == nullptr || most == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const nvmlReturn_t result = api::nvmlDeviceGetClockInfo(device, type, least);
  if (result == NVML_SUCCESS) *most = *least;
  return result;
}
nvmlReturn_t api::nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t type,
                                                     unsigned int* clock) {
  return api::nvmlDeviceGetMaxClockInfo(device, type, clock);
}
#ifdef HAVE_nvmlDeviceGetClockOffsets
nvmlReturn_t api::nvmlDeviceGetClockOffsets(nvmlDevice_t device, nvmlClockOffset_t* offset) {
  if (offset == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (offset->version != nvmlClockOffset_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (offset->pstate != NVML_PSTATE_0) return NVML_ERROR_INVALID_ARGUMENT;
  return answer_always(device, offset, {nvmlClockOffset_v1, offset->type, offset->pstate, 0, 0, 0});
}
#endif
nvmlReturn_t api::nvmlDeviceGetAutoBoostedClocksEnabled(nvmlDevice_t /*device*/, nvmlEnableState_t* /*now*/,
                                                        nvmlEnableState_t* /*initially*/) {
  return NVML_ERROR_NOT_SUPPORTED;  // as since Pascal
}
nvmlReturn_t api::nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device,
                                                              unsigned long long* reasons) {
  return answer_always(device, reasons, kReasons);
}
#ifdef HAVE_nvmlDeviceGetSupportedClocksEventReasons
nvmlReturn_t api::nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
  return answer_always(device, reasons, kReasons);
}
#endif

nvmlReturn_t api::nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || count < 0 || values == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (nvmlFieldValue_t* value = values; value != values + count; ++value) {
    value->timestamp = microseconds_now();
    value->latencyUsec = 0;
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    value->value.ullVal = 0;
    value->nvmlReturn = is_counted(value->fieldId) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}
#ifdef HAVE_nvmlDeviceClearFieldValues
nvmlReturn_t api::nvmlDeviceClearFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
  return api::nvmlDeviceGetFieldValues(device, count, values);
}
#endif

}  // namespace gpumem::sim
