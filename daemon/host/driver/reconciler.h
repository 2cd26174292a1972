#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cuda/nvml.h"
#include "daemon/core/broker/executor.h"
#include "daemon/core/words/observation.h"
#include "daemon/host/system/left_to_driver.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

/// The queue of requests for a look at the devices' memory. Each user has one look a second, and all requests
/// of the user until then share it. Administrators do not wait.
class LookQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Then = core::Observer::Then;
  static constexpr std::chrono::seconds kPause{1};
  static constexpr std::size_t kMostOfAUser = 16;
  static constexpr std::size_t kMost = 1024;

  /// Errors  kResourceExhausted: too many of this user, or of all, wait already; `then` is dropped.
  Result<void> add(core::Asker asker, Then then, Clock::time_point now);
  /// When the next turn is; nothing: nobody waits.
  std::optional<Clock::time_point> next() const;
  /// Takes out those whose turn has come.
  std::vector<Then> take_due(Clock::time_point now);

 private:
  struct User {
    Clock::time_point turn;  ///< time of the next look for `waiting`; if none waits, when kPause ends
    std::vector<Then> waiting;
  };

  std::map<std::uint64_t, User> users_;  // users who wait, or had a look within kPause
  std::size_t waiting_ = 0;
};

/// Asks the management library, at once, every so often and on demand, who uses how much of each device, and
/// the kernel who they are; the core observes the answers. Also looks which of them drive displays. On a
/// thread of its own: the library's calls block. Looks on demand neither delay nor replace the regular ones.
class Reconciler final : public core::Observer {
 public:
  struct Options {
    std::filesystem::path driver_folder;    ///< empty: the system's
    std::vector<cuda::DeviceUuid> devices;  ///< of the policy, in its order
    std::chrono::seconds period{};          ///< between two looks; 0: on demand only
    PodReader pods{};                       ///< for whose the processes are
    const SubordinateIds* subordinates =
        nullptr;                               ///< owners of containers' users; outlives it; none: not known
    std::filesystem::path runtime_folder{};    ///< of the broker
    std::filesystem::path display_folder{};    ///< as cards_with_display()
    std::vector<std::string> pci_addresses{};  ///< of `devices`
  };
  /// The least time between two looks for displays.
  static constexpr std::chrono::seconds kDisplayPause{10};
  /// The least time between two looks on demand.
  static constexpr std::chrono::milliseconds kLeastPause{50};

  /// `executor`  outlives it.
  Reconciler(core::Executor& executor, Options options);
  /// Waits for the look under way.
  ~Reconciler() override;
  Reconciler(const Reconciler&) = delete;
  Reconciler& operator=(const Reconciler&) = delete;

  Result<void> look(core::Asker asker, Then then) override;
  void set_period(std::chrono::seconds period);

 private:
  using Clock = std::chrono::steady_clock;

  /// What is to be done now.
  struct Turn {
    bool regular = false;
    std::vector<Then> asked;
  };

  void work();
  std::optional<Turn> await_turn();
  std::optional<Clock::time_point> next_regular() const GPUMEM_REQUIRES(mutex_);
  std::optional<Clock::time_point> next_asked() const GPUMEM_REQUIRES(mutex_);
  void look_at_all(Turn turn);
  void look_for_displays();
  bool open();
  core::Observation observe(core::DeviceIndex device, bool regular);
  Result<void> ask(const cuda::DeviceUuid& uuid, core::Observation& observation) const;
  void add(const cuda::ProcessMemory& process, core::Observation& observation) const;
  void note_problem(core::DeviceIndex device, const std::string& problem);

  core::Executor& executor_;
  const std::filesystem::path driver_folder_;
  const std::vector<cuda::DeviceUuid> devices_;
  const PodReader pods_;
  const SubordinateIds* const subordinates_;
  const std::filesystem::path runtime_folder_;
  const std::filesystem::path display_folder_;
  const std::vector<std::string> pci_addresses_;
  Clock::time_point next_displays_{};  ///< the worker's thread's
  const std::uint64_t started_;        ///< this process
  std::unique_ptr<cuda::Nvml> nvml_;
  LeftToDriver left_to_driver_;        ///< as of this look
  std::string no_library_;             ///< why there is none
  std::vector<std::string> problems_;  ///< of each device, as last logged
  Mutex mutex_;
  Condition wake_;
  std::chrono::seconds period_ GPUMEM_GUARDED_BY(mutex_);
  LookQueue asked_ GPUMEM_GUARDED_BY(mutex_);
  bool stopping_ GPUMEM_GUARDED_BY(mutex_) = false;
  Clock::time_point last_ GPUMEM_GUARDED_BY(mutex_);                         ///< look
  std::optional<Clock::time_point> last_regular_ GPUMEM_GUARDED_BY(mutex_);  ///< one
  std::thread thread_;
};

}  // namespace gpumem::host
