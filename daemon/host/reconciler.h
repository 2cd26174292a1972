#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cuda/nvml.h"
#include "daemon/core/gate.h"
#include "daemon/core/observation.h"

namespace gpumem::host {

/// Asks the management library, every so often and on demand, who uses how much of each device, and the
/// kernel who they are; the core observes the answers. On a thread of its own: the library's calls block.
class Reconciler final : public core::Observer {
 public:
  struct Options {
    std::filesystem::path driver_folder;    ///< empty: the system's
    std::vector<cuda::DeviceUuid> devices;  ///< those of the policy, in its order
    std::chrono::seconds period{};          ///< between two looks; 0: on demand only
  };
  /// However often it is asked: not more often than this.
  static constexpr std::chrono::milliseconds kLeastPause{50};

  /// `gate`  outlives it.
  Reconciler(core::Gate& gate, Options options);
  /// Waits for the look under way.
  ~Reconciler() override;
  Reconciler(const Reconciler&) = delete;
  Reconciler& operator=(const Reconciler&) = delete;

  void look(Then then) override;
  void set_period(std::chrono::seconds period);

 private:
  using Clock = std::chrono::steady_clock;

  void work();
  bool await_turn(std::vector<Then>& asked);
  void look_at_all(std::vector<Then> asked);
  bool open();
  core::Observation observe(core::DeviceIndex device);
  Result<void> ask(const cuda::DeviceUuid& uuid, core::Observation& observation) const;
  void add(const cuda::ProcessMemory& process, core::Observation& observation) const;
  void note_problem(core::DeviceIndex device, const std::string& problem);

  core::Gate& gate_;
  const std::filesystem::path driver_folder_;
  const std::vector<cuda::DeviceUuid> devices_;
  const std::uint64_t started_;  ///< this process
  std::unique_ptr<cuda::Nvml> nvml_;
  std::string no_library_;             ///< why there is none
  std::vector<std::string> problems_;  ///< of each device, as last logged
  Mutex mutex_;
  Condition wake_;
  std::chrono::seconds period_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<Then> asked_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  Clock::time_point last_ GPUMEM_GUARDED_BY(mutex_);  ///< look
  std::thread thread_;
};

}  // namespace gpumem::host
