// Sets of events to wait for. Nothing ever happens to a simulated device, so who waits waits in vain.
#include <nvml.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

#include "nvml_calls.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned long long kKnownEvents = nvmlEventTypeXidCriticalError | nvmlEventTypeClock |
                                            nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;

/// The sets of one kind that a program has.
/// Threads  any.
template <class Set>
class EventSets {
 public:
  Set make() {
    const std::lock_guard lock(mutex_);
    sets_.insert(++last_);
    return reinterpret_cast<Set>(last_);  // NOLINT(performance-no-int-to-ptr): a number
  }
  bool has(Set set) const {
    const std::lock_guard lock(mutex_);
    return sets_.contains(reinterpret_cast<std::uintptr_t>(set));
  }
  bool erase(Set set) {
    const std::lock_guard lock(mutex_);
    return sets_.erase(reinterpret_cast<std::uintptr_t>(set)) == 1;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::uintptr_t> sets_;
  std::uintptr_t last_ = 0;
};

EventSets<nvmlEventSet_t>& device_sets() {
  static auto* const sets = new EventSets<nvmlEventSet_t>();  // used until the process ends
  return *sets;
}

bool is_initialized() { return bool(NvmlCall()); }

/// Holds no lock of the library meanwhile.
nvmlReturn_t wait_in_vain(unsigned milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return NVML_ERROR_TIMEOUT;
}

}  // namespace

nvmlReturn_t api::nvmlEventSetCreate(nvmlEventSet_t* set) {
  if (!is_initialized()) return NVML_ERROR_UNINITIALIZED;
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *set = device_sets().make();
  return NVML_SUCCESS;
}
nvmlReturn_t api::nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* types) {
  return answer_always(device, types, kKnownEvents);
}
nvmlReturn_t api::nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                           nvmlEventSet_t set) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || !device_sets().has(set)) return NVML_ERROR_INVALID_ARGUMENT;
  return (types & ~kKnownEvents) == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t api::nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int milliseconds) {
  if (!is_initialized()) return NVML_ERROR_UNINITIALIZED;
  if (data == nullptr || !device_sets().has(set)) return NVML_ERROR_INVALID_ARGUMENT;
  return wait_in_vain(milliseconds);
}
nvmlReturn_t api::nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t* data, unsigned int milliseconds) {
  return api::nvmlEventSetWait_v2(set, data, milliseconds);
}
nvmlReturn_t api::nvmlEventSetFree(nvmlEventSet_t set) {
  if (!is_initialized()) return NVML_ERROR_UNINITIALIZED;
  return device_sets().erase(set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

// Of the system: devices that come and go.
#ifdef HAVE_nvmlSystemEventSetCreate
namespace {

constexpr unsigned long long kSystemEvents =
    nvmlSystemEventTypeGpuDriverBind | nvmlSystemEventTypeGpuDriverUnbind;

EventSets<nvmlSystemEventSet_t>& system_sets() {
  static auto* const sets = new EventSets<nvmlSystemEventSet_t>();
  return *sets;
}

template <class Request>
nvmlReturn_t check(const Request* request, unsigned version) {
  if (!is_initialized()) return NVML_ERROR_UNINITIALIZED;
  if (request == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return request->version == version ? NVML_SUCCESS : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}
template <class Request>
nvmlReturn_t check_set(const Request* request, unsigned version) {
  const nvmlReturn_t checked = check(request, version);
  if (checked != NVML_SUCCESS) return checked;
  return system_sets().has(request->set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

}  // namespace

nvmlReturn_t api::nvmlSystemEventSetCreate(nvmlSystemEventSetCreateRequest_t* request) {
  const nvmlReturn_t checked = check(request, nvmlSystemEventSetCreateRequest_v1);
  if (checked == NVML_SUCCESS) request->set = system_sets().make();
  return checked;
}
nvmlReturn_t api::nvmlSystemRegisterEvents(nvmlSystemRegisterEventRequest_t* request) {
  const nvmlReturn_t checked = check_set(request, nvmlSystemRegisterEventRequest_v1);
  if (checked != NVML_SUCCESS) return checked;
  return (request->eventTypes & ~kSystemEvents) == 0 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t api::nvmlSystemEventSetWait(nvmlSystemEventSetWaitRequest_t* request) {
  const nvmlReturn_t checked = check_set(request, nvmlSystemEventSetWaitRequest_v1);
  if (checked != NVML_SUCCESS) return checked;
  request->numEvent = 0;
  return wait_in_vain(request->timeoutms);
}
nvmlReturn_t api::nvmlSystemEventSetFree(nvmlSystemEventSetFreeRequest_t* request) {
  const nvmlReturn_t checked = check_set(request, nvmlSystemEventSetFreeRequest_v1);
  if (checked == NVML_SUCCESS) system_sets().erase(request->set);
  return checked;
}
#endif

}  // namespace gpumem::sim
