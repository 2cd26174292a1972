#pragma once
#include <chrono>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cuda/nvml.h"
#include "daemon/core/words/observation.h"

namespace gpumem::host {

/// How busy the devices are, as the management library tells. Its calls may block, so that they are made on a
/// thread of its own, and only when somebody asks.
/// Threads  any.
class DeviceLoads {
 public:
  /// How long read() waits for the library.
  static constexpr std::chrono::milliseconds kPatience{100};

  /// `nvml`  outlives it; null: nothing is known.
  DeviceLoads(const cuda::Nvml* nvml, std::vector<cuda::DeviceUuid> devices);
  /// Waits for the library.
  ~DeviceLoads();
  DeviceLoads(const DeviceLoads&) = delete;
  DeviceLoads& operator=(const DeviceLoads&) = delete;

  /// Asks the library. Returns its answers, in the order of the devices; empty values: it does not tell, or
  /// not in time.
  std::vector<core::DeviceLoad> read();

 private:
  void work();

  const cuda::Nvml* const nvml_;
  const std::vector<cuda::DeviceUuid> devices_;
  Mutex mutex_;
  Condition changed_;
  bool is_asked_ GPUMEM_GUARDED_BY(mutex_) = false;
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  std::vector<core::DeviceLoad> answers_ GPUMEM_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gpumem::host
