#include "cuda/nvml.h"

#include <algorithm>
#include <array>

#include "cuda/library.h"

#define GPUMEM_NVML_CALLS(CALL)                 \
  CALL(nvmlInit)                                \
  CALL(nvmlShutdown)                            \
  CALL(nvmlErrorString)                         \
  CALL(nvmlSystemGetDriverVersion)              \
  CALL(nvmlDeviceGetHandleByUUID)               \
  CALL(nvmlDeviceGetMemoryInfo)                 \
  CALL(nvmlDeviceGetMemoryInfo_v2)              \
  CALL(nvmlDeviceGetComputeRunningProcesses)    \
  CALL(nvmlDeviceGetGraphicsRunningProcesses)   \
  CALL(nvmlDeviceGetMPSComputeRunningProcesses) \
  CALL(nvmlDeviceGetUtilizationRates)           \
  CALL(nvmlDeviceGetTemperature)
#define GPUMEM_TEXT_OF(name) #name
#define GPUMEM_SYMBOL(name) GPUMEM_TEXT_OF(name)

namespace gpumem::cuda {

struct Nvml::Api {
#define GPUMEM_NVML_MEMBER(name) decltype(&::name) name = nullptr;
  GPUMEM_NVML_CALLS(GPUMEM_NVML_MEMBER)
#undef GPUMEM_NVML_MEMBER
};

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}
Nvml::~Nvml() { api_->nvmlShutdown(); }

Result<std::unique_ptr<Nvml>> Nvml::open(const std::filesystem::path& folder) {
  auto library = Library::open(folder, "libnvidia-ml.so.1");
  if (!library) return library.error();
  auto api = std::make_unique<Api>();
#define GPUMEM_NVML_BIND(name) \
  if (auto bound = library->bind(api->name, GPUMEM_SYMBOL(name)); !bound) return bound.error();
  GPUMEM_NVML_CALLS(GPUMEM_NVML_BIND)
#undef GPUMEM_NVML_BIND
  if (const nvmlReturn_t started = api->nvmlInit(); started != NVML_SUCCESS)
    return Error{Code::kFailedPrecondition, std::string("nvmlInit: ") + api->nvmlErrorString(started)};
  return std::unique_ptr<Nvml>(new Nvml(std::move(api)));
}

Result<void> Nvml::check(nvmlReturn_t result, const char* call) const {
  if (result == NVML_SUCCESS) return {};
  const Code code = result == NVML_ERROR_NOT_FOUND          ? Code::kNotFound
                    : result == NVML_ERROR_NO_PERMISSION    ? Code::kPermissionDenied
                    : result == NVML_ERROR_NOT_SUPPORTED    ? Code::kFailedPrecondition
                    : result == NVML_ERROR_INVALID_ARGUMENT ? Code::kInvalidArgument
                                                            : Code::kInternal;
  return Error{code, std::string(call) + ": " + api_->nvmlErrorString(result)};
}

Result<nvmlDevice_t> Nvml::find(const DeviceUuid& uuid) const {
  nvmlDevice_t device{};
  auto found =
      check(api_->nvmlDeviceGetHandleByUUID(to_string(uuid).c_str(), &device), "nvmlDeviceGetHandleByUUID");
  if (!found) return found.error();
  return device;
}

Result<DeviceMemory> Nvml::memory(const DeviceUuid& uuid) const {
  auto device = find(uuid);
  if (!device) return device.error();
  nvmlMemory_v2_t memory{};
  memory.version = nvmlMemory_v2;
  if (api_->nvmlDeviceGetMemoryInfo_v2(*device, &memory) == NVML_SUCCESS)
    return DeviceMemory{{memory.total}, {memory.used}, {memory.free}};
  nvmlMemory_t together{};
  auto asked = check(api_->nvmlDeviceGetMemoryInfo(*device, &together), "nvmlDeviceGetMemoryInfo");
  if (!asked) return asked.error();
  return DeviceMemory{{together.total}, {together.used}, {together.free}};
}

Result<void> Nvml::list(nvmlDevice_t device, ListProcesses ask, const char* call,
                        std::vector<ProcessMemory>& processes) const {
  std::vector<nvmlProcessInfo_t> found(64);
  auto count = static_cast<unsigned>(found.size());
  nvmlReturn_t asked = NVML_SUCCESS;
  while ((asked = ask(device, &count, found.data())) == NVML_ERROR_INSUFFICIENT_SIZE) {
    count += 64;  // processes may start between the two calls
    found.resize(count);
  }
  if (auto ok = check(asked, call); !ok) return ok.error();
  found.resize(count);
  for (const nvmlProcessInfo_t& one : found) {
    const bool known = one.usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
    const Bytes used{known ? one.usedGpuMemory : 0};
    const auto listed = std::ranges::find(processes, one.pid, &ProcessMemory::pid);
    if (listed == processes.end())
      processes.push_back({one.pid, used});
    else  // the figure is the process's in every list
      listed->used = std::max(listed->used, used);
  }
  return {};
}

Result<std::vector<ProcessMemory>> Nvml::processes(const DeviceUuid& uuid) const {
  auto device = find(uuid);
  if (!device) return device.error();
  std::vector<ProcessMemory> processes;
  auto computing = list(*device, api_->nvmlDeviceGetComputeRunningProcesses,
                        "nvmlDeviceGetComputeRunningProcesses", processes);
  if (!computing) return computing.error();
  // Not every device draws or is shared by MPS; then there is nothing to list.
  for (const ListProcesses ask :
       {api_->nvmlDeviceGetGraphicsRunningProcesses, api_->nvmlDeviceGetMPSComputeRunningProcesses}) {
    static_cast<void>(list(*device, ask, "", processes));
  }
  return processes;
}

Result<unsigned> Nvml::utilization(const DeviceUuid& uuid) const {
  auto device = find(uuid);
  if (!device) return device.error();
  nvmlUtilization_t rates{};
  auto asked = check(api_->nvmlDeviceGetUtilizationRates(*device, &rates), "nvmlDeviceGetUtilizationRates");
  if (!asked) return asked.error();
  return rates.gpu;
}

Result<unsigned> Nvml::temperature(const DeviceUuid& uuid) const {
  auto device = find(uuid);
  if (!device) return device.error();
  unsigned degrees = 0;
  auto asked = check(api_->nvmlDeviceGetTemperature(*device, NVML_TEMPERATURE_GPU, &degrees),
                     "nvmlDeviceGetTemperature");
  if (!asked) return asked.error();
  return degrees;
}

Result<std::string> Nvml::driver_version() const {
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
  auto asked = check(api_->nvmlSystemGetDriverVersion(text.data(), static_cast<unsigned>(text.size())),
                     "nvmlSystemGetDriverVersion");
  if (!asked) return asked.error();
  return std::string(text.data());
}

}  // namespace gpumem::cuda
