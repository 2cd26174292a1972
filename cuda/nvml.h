#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "cuda/headers.h"
#include "cuda/uuid.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::cuda {

struct DeviceMemory {
  Bytes total;
  Bytes
      used;  ///< allocated by anyone; without what the driver keeps for itself, where it tells the two apart
  Bytes free;
};
struct ProcessMemory {
  unsigned pid = 0;
  Bytes used;  ///< zero where the driver does not tell
};

/// Figures of NVIDIA's management library about a device's memory, without a context.
/// Threads  any.
class Nvml {
 public:
  /// Loads libnvidia-ml.so.1 from `folder` (empty: the system's search path).
  /// Errors  kNotFound, kFailedPrecondition.
  static Result<std::unique_ptr<Nvml>> open(const std::filesystem::path& folder = {});
  ~Nvml();

  Result<DeviceMemory> memory(const DeviceUuid& uuid) const;
  /// The processes that compute or draw, each once, with its pid in this process's PID namespace.
  Result<std::vector<ProcessMemory>> processes(const DeviceUuid& uuid) const;
  /// Percent of the time in which a kernel ran, over a period of the driver's, at most a second.
  Result<unsigned> utilization(const DeviceUuid& uuid) const;
  /// Degrees Celsius.
  Result<unsigned> temperature(const DeviceUuid& uuid) const;
  /// The kernel driver's version, `570.86.15`.
  Result<std::string> driver_version() const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  Result<void> check(nvmlReturn_t result, const char* call) const;
  Result<nvmlDevice_t> find(const DeviceUuid& uuid) const;
  using ListProcesses = decltype(&::nvmlDeviceGetComputeRunningProcesses);
  Result<void> list(nvmlDevice_t device, ListProcesses ask, const char* call,
                    std::vector<ProcessMemory>& processes) const;

  std::unique_ptr<Api> api_;
};

}  // namespace gpumem::cuda
