// The processes that use a device.
#include <nvml.h>

#include <map>
#include <set>
#include <utility>

#include "nvml_calls.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kNoInstance = 0xffffffff;  // of MIG

void set(nvmlProcessInfo_v1_t& info, unsigned pid, std::uint64_t bytes) { info = {pid, bytes}; }
void set(nvmlProcessInfo_v2_t& info, unsigned pid, std::uint64_t bytes) {
  info = {pid, bytes, kNoInstance, kNoInstance};
}

/// Living processes that have a context on the device, with the bytes that each created there. Nobody is told
/// of the memory of others.
std::map<ProcessId, std::uint64_t> users_of(const NvmlCall& nvml, std::uint32_t index) {
  std::map<ProcessId, std::uint64_t> bytes;
  std::set<ProcessId> with_context;
  for (const ExtentInfo& extent : nvml->extents()) {
    if (extent.device != index) continue;
    bytes[extent.creator] += extent.size;
    if (extent.kind == Kind::kContext) with_context.insert(extent.creator);
  }
  std::erase_if(bytes, [&](const auto& entry) {
    return !with_context.contains(entry.first) || !is_alive(entry.first);
  });
  return bytes;
}

/// Room that is too small is told how much is needed.
template <class Info>
nvmlReturn_t list_users(nvmlDevice_t device, unsigned* count, Info* infos) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto users = users_of(nvml, NvmlCall::index_of(device));
  const auto needed = static_cast<unsigned>(users.size());
  const unsigned room = std::exchange(*count, needed);
  if (room < needed) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (needed > 0 && infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (const auto& [process, used] : users) set(*infos++, static_cast<unsigned>(process.pid), used);
  return NVML_SUCCESS;
}

nvmlReturn_t list_nobody(nvmlDevice_t device, unsigned* count) { return answer_always(device, count, 0); }

}  // namespace

nvmlReturn_t api::nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                          nvmlProcessInfo_t* infos) {
  return list_users(device, count, infos);
}
nvmlReturn_t api::nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                          nvmlProcessInfo_v2_t* infos) {
  return list_users(device, count, infos);
}
nvmlReturn_t api::nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                                       nvmlProcessInfo_v1_t* infos) {
  return list_users(device, count, infos);
}

nvmlReturn_t api::nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                           nvmlProcessInfo_t* /*infos*/) {
  return list_nobody(device, count);
}
nvmlReturn_t api::nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                           nvmlProcessInfo_v2_t* /*infos*/) {
  return list_nobody(device, count);
}
nvmlReturn_t api::nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                                        nvmlProcessInfo_v1_t* /*infos*/) {
  return list_nobody(device, count);
}

nvmlReturn_t api::nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                             nvmlProcessInfo_t* /*infos*/) {
  return list_nobody(device, count);
}
nvmlReturn_t api::nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                             nvmlProcessInfo_v2_t* /*infos*/) {
  return list_nobody(device, count);
}
nvmlReturn_t api::nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                                          nvmlProcessInfo_v1_t* /*infos*/) {
  return list_nobody(device, count);
}

/// Nobody computes here, so there are no samples.
nvmlReturn_t api::nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                  nvmlProcessUtilizationSample_t* /*samples*/,
                                                  unsigned int* count, unsigned long long /*since*/) {
  const nvmlReturn_t result = list_nobody(device, count);
  return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

}  // namespace gpumem::sim
