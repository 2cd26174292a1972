#pragma once
#include <chrono>
#include <string>

#include "daemon/host/descriptor_store.h"

namespace gpumem::host {

/// Sends states and descriptors to systemd: sd_notify(3). No effect if no service manager started the
/// process. Threads  any. Blocks  while the service manager does not read: not for the core's thread.
class ServiceManager final : public DescriptorStore {
 public:
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

}  // namespace gpumem::host
