#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "daemon/host/state/passed_descriptors.h"

namespace gpumem::host {

/// Sends states and descriptors to systemd: sd_notify(3). No effect if no service manager started the
/// process. Threads  any. Blocks  while the service manager does not read: not for the core's thread.
class ServiceManager final : public DescriptorStore {
 public:
  /// Whether one started the process.
  bool is_there() const;
  /// How long alive() may fail to come before the process is ended; zero: nobody watches.
  std::chrono::microseconds watchdog_timeout() const;

  /// The broker serves, or serves again after reloading().
  void ready() const;
  void reloading() const;
  void stopping() const;
  /// `status`  one line, as `systemctl status` shows it.
  void alive(const std::string& status) const;

  /// Where descriptors outlive the broker; null: nowhere.
  const DescriptorStore* store() const;
  void keep(LeaseId lease, int descriptor) const override;
  [[nodiscard]] bool forget(std::span<const LeaseId> leases) const override;
};

/// Reports that the core's thread decides: asks it, waits for its answer, reports that, and asks again after
/// `interval`. While the thread is stuck nothing is reported, so the service manager notices.
class Watchdog {
 public:
  /// Has the core's thread call `answer` with a line on how things stand. Does not block. The answer may
  /// never come, or come after the watchdog's end.
  using Ask = std::function<void(std::function<void(std::string)> answer)>;
  /// Called on the watchdog's own thread; may block.
  using Report = std::function<void(const std::string& status)>;

  Watchdog(std::chrono::microseconds interval, Ask ask, Report report);
  /// Ends at once, whether the core answers or not.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the answers', too
  std::thread thread_;
};

}  // namespace gpumem::host
