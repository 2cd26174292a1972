// How the devices lie to each other and to the host's processors: all on one host bridge, without NVLink,
// each as near to every processor.
#include <nvml.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>

#include "nvml_calls.h"
#include "sim/nvml/call.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

unsigned processors() { return static_cast<unsigned>(::sysconf(_SC_NPROCESSORS_ONLN)); }

/// Sets the first `count` bits of the `words` words of `set`, and clears the others.
nvmlReturn_t put_bits(nvmlDevice_t device, unsigned count, unsigned words, unsigned long* set) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || words == 0 || set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (count > words * kBitsPerWord) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::fill_n(set, words, 0);
  for (unsigned i = 0; i < count; ++i) set[i / kBitsPerWord] |= 1UL << (i % kBitsPerWord);
  return NVML_SUCCESS;
}

/// Answers how many devices `matches`, or those, as many as there is room for: `*count` of them.
template <class Matches>
nvmlReturn_t put_devices(const NvmlCall& nvml, unsigned* count, nvmlDevice_t* devices,
                         const Matches& matches) {
  unsigned found = 0;
  for (std::uint32_t i = 0; i < nvml->device_count(); ++i) {
    if (!matches(i)) continue;
    if (devices != nullptr && found < *count) devices[found] = NvmlCall::handle_of(i);
    ++found;
  }
  *count = devices == nullptr ? found : std::min(found, *count);
  return NVML_SUCCESS;
}

/// A value about two devices, which `ask(same)` answers.
template <class Value, class Ask>
nvmlReturn_t answer_pair(nvmlDevice_t one, nvmlDevice_t other, Value* out, const Ask& ask) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(one) || !nvml.has(other) || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = ask(one == other);
  return NVML_SUCCESS;
}

nvmlGpuP2PStatus_t peer_status(nvmlGpuP2PCapsIndex_t what) {
  const bool has = what == NVML_P2P_CAPS_INDEX_READ || what == NVML_P2P_CAPS_INDEX_WRITE ||
                   what == NVML_P2P_CAPS_INDEX_ATOMICS;
  return has ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
}

}  // namespace

nvmlReturn_t api::nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long* set) {
  return put_bits(device, processors(), words, set);
}
nvmlReturn_t api::nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                      unsigned long* set, nvmlAffinityScope_t scope) {
  if (scope > NVML_AFFINITY_SCOPE_SOCKET) return NVML_ERROR_INVALID_ARGUMENT;
  return put_bits(device, processors(), words, set);
}
/// The host's first node alone.
nvmlReturn_t api::nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long* set,
                                              nvmlAffinityScope_t scope) {
  return scope > NVML_AFFINITY_SCOPE_SOCKET ? NVML_ERROR_INVALID_ARGUMENT : put_bits(device, 1, words, set);
}
nvmlReturn_t api::nvmlSystemGetTopologyGpuSet(unsigned int processor, unsigned int* count,
                                              nvmlDevice_t* devices) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (count == nullptr || processor >= processors()) return NVML_ERROR_INVALID_ARGUMENT;
  return put_devices(nvml, count, devices, [](std::uint32_t) { return true; });
}

nvmlReturn_t api::nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                      nvmlGpuTopologyLevel_t* level) {
  return answer_pair(one, other, level,
                     [](bool same) { return same ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_HOSTBRIDGE; });
}
nvmlReturn_t api::nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                                   unsigned int* count, nvmlDevice_t* devices) {
  const NvmlCall nvml;
  if (!nvml) return nvml.error();
  if (!nvml.has(device) || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::uint32_t own = NvmlCall::index_of(device);
  return put_devices(nvml, count, devices,
                     [&](std::uint32_t i) { return i != own && level == NVML_TOPOLOGY_HOSTBRIDGE; });
}
nvmlReturn_t api::nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int* same_board) {
  return answer_pair(one, other, same_board, [](bool same) { return same ? 1 : 0; });
}
nvmlReturn_t api::nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuP2PCapsIndex_t what,
                                         nvmlGpuP2PStatus_t* status) {
  if (what >= NVML_P2P_CAPS_INDEX_UNKNOWN) return NVML_ERROR_INVALID_ARGUMENT;
  return answer_pair(one, other, status, [what](bool) { return peer_status(what); });
}

}  // namespace gpumem::sim
