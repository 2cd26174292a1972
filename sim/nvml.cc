// libnvidia-ml.so.1: figures of the machine. Sees every device, whatever CUDA_VISIBLE_DEVICES says.
#include <nvml.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "sim/locate.h"
#include "sim/table.h"

using namespace gpumem::sim;

namespace {

struct Nvml {
  std::mutex mutex;
  unsigned users = 0;
  std::unique_ptr<Table> table;

  static Nvml& get() {
    static auto* const nvml = new Nvml();
    return *nvml;
  }
};

/// One call: holds the lock; usable between nvmlInit and nvmlShutdown.
class Call {
 public:
  Call() : lock_(Nvml::get().mutex) {}
  explicit operator bool() const { return Nvml::get().users > 0; }
  Table* operator->() { return Nvml::get().table.get(); }

  /// The device's index, or nothing if the handle is none of ours. Handles are index + 1.
  bool has(nvmlDevice_t device) { return index_of(device) < Nvml::get().table->device_count(); }
  static std::uint32_t index_of(nvmlDevice_t device) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(device)) - 1;
  }
  static nvmlDevice_t handle_of(std::uint32_t index) {
    return reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(index) + 1);
  }

 private:
  std::lock_guard<std::mutex> lock_;
};

nvmlReturn_t put(std::string_view text, char* out, unsigned length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= text.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return NVML_SUCCESS;
}

/// Checks what almost every call takes, then answers `value` as `*out`.
template <class Value, class Ask>
nvmlReturn_t answer(nvmlDevice_t device, Value* out, Ask ask) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  if (!nvml.has(device) || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = ask(nvml, Call::index_of(device));
  return NVML_SUCCESS;
}

void set(nvmlProcessInfo_v1_t& info, unsigned pid, std::uint64_t bytes) { info = {pid, bytes}; }
void set(nvmlProcessInfo_v2_t& info, unsigned pid, std::uint64_t bytes) {
  info = {pid, bytes, 0xffffffffU, 0xffffffffU};  // no MIG instances
}

/// Living processes with the bytes that each created on the device.
template <class Info>
nvmlReturn_t list_processes(nvmlDevice_t device, unsigned* count, Info* infos) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  if (!nvml.has(device) || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::map<ProcessId, std::uint64_t> bytes;
  for (const ExtentInfo& extent : nvml->extents()) {
    if (extent.device == Call::index_of(device)) bytes[extent.creator] += extent.size;
  }
  std::erase_if(bytes, [](const auto& entry) { return !is_alive(entry.first); });
  const auto needed = static_cast<unsigned>(bytes.size());
  const unsigned room = std::exchange(*count, needed);
  if (room < needed) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (needed > 0 && infos == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (const auto& [process, used] : bytes) set(*infos++, static_cast<unsigned>(process.pid), used);
  return NVML_SUCCESS;
}

nvmlReturn_t list_none(nvmlDevice_t device, unsigned* count) {
  return answer(device, count, [](Call&, std::uint32_t) { return 0U; });
}

}  // namespace

#undef nvmlInit
#undef nvmlDeviceGetCount
#undef nvmlDeviceGetHandleByIndex
#undef nvmlDeviceGetPciInfo
#undef nvmlDeviceGetComputeRunningProcesses
#undef nvmlDeviceGetGraphicsRunningProcesses

extern "C" {

nvmlReturn_t nvmlInitWithFlags(unsigned int /*flags*/) {
  Nvml& nvml = Nvml::get();
  const std::lock_guard lock(nvml.mutex);
  if (nvml.users == 0) {
    const auto machine = locate_machine();
    if (!machine) return NVML_ERROR_DRIVER_NOT_LOADED;
    auto opened = Table::open(*machine);
    if (!opened) return NVML_ERROR_DRIVER_NOT_LOADED;
    nvml.table = std::move(*opened);
  }
  ++nvml.users;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlInit_v2() { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit() { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown() {
  Nvml& nvml = Nvml::get();
  const std::lock_guard lock(nvml.mutex);
  if (nvml.users == 0) return NVML_ERROR_UNINITIALIZED;
  if (--nvml.users == 0) nvml.table.reset();
  return NVML_SUCCESS;
}

const char* nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  const Call nvml;
  return nvml ? put("580.0.sim", version, length) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  return put("13.580.0", version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (version == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *version = 13000;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = nvml->device_count();
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) { return nvmlDeviceGetCount_v2(count); }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr || index >= nvml->device_count()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = Call::handle_of(index);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  if (uuid == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  for (std::uint32_t i = 0; i < nvml->device_count(); ++i) {
    if (to_string(nvml->uuid(i)) != uuid) continue;
    *device = Call::handle_of(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  return nvml.has(device) ? put("gpumem simulated GPU", name, length) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  Call nvml;
  if (!nvml) return NVML_ERROR_UNINITIALIZED;
  if (!nvml.has(device)) return NVML_ERROR_INVALID_ARGUMENT;
  return put(to_string(nvml->uuid(Call::index_of(device))), uuid, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return answer(device, index, [](Call&, std::uint32_t i) { return i; });
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minor) {
  return answer(device, minor, [](Call&, std::uint32_t i) { return i; });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  return answer(device, memory, [](Call& nvml, std::uint32_t i) {
    const std::uint64_t total = nvml->total(i), free = nvml->free(i);
    return nvmlMemory_t{
        .total = total, .free = free, .used = total - free};  // this version counts reserved as used
  });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory != nullptr && memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  return answer(device, memory, [](Call& nvml, std::uint32_t i) {
    const std::uint64_t total = nvml->total(i), used = nvml->used(i),
                        free = std::min(nvml->free(i), total - used);
    return nvmlMemory_v2_t{.version = nvmlMemory_v2,
                           .total = total,
                           .reserved = total - free - used,
                           .free = free,
                           .used = used};
  });
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_t* infos) {
  return list_processes(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* count,
                                                     nvmlProcessInfo_v2_t* infos) {
  return list_processes(device, count, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* count,
                                                  nvmlProcessInfo_v1_t* infos) {
  return list_processes(device, count, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                      nvmlProcessInfo_t*) {
  return list_none(device, count);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* count,
                                                        nvmlProcessInfo_t*) {
  return list_none(device, count);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  return answer(device, mode, [](Call&, std::uint32_t) { return NVML_FEATURE_ENABLED; });
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization) {
  return answer(device, utilization, [](Call&, std::uint32_t) { return nvmlUtilization_t{}; });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *minor = 0;
  return answer(device, major, [](Call&, std::uint32_t) { return 9; });
}

}  // extern "C"
