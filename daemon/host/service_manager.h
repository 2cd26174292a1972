#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace gpumem::host {

/// The names (FileDescriptorName=) of the listening sockets that a service manager passes.
inline constexpr std::string_view kLaneDescriptor = "lane";
inline constexpr std::string_view kApiDescriptor = "api";

/// What systemd passes to the broker, and what it is told: sd_listen_fds(3), sd_notify(3). Where no service
/// manager started the process, nothing is passed and nobody is told.
/// Threads  any, except take().
/// Blocks   while the service manager does not read what it is told: not for the core's thread.
class ServiceManager {
 public:
  /// Owns the descriptors that were passed to this process, close-on-exec. At most once in a process.
  static ServiceManager of_process();

  /// The descriptor that was passed under `name`, once. Of several with this name, the first.
  std::optional<UniqueFd> take(std::string_view name);
  /// How long alive() may fail to come before the process is ended; zero: nobody watches.
  std::chrono::microseconds watchdog_timeout() const;

  /// The broker serves, or serves again after reloading().
  void ready() const;
  void reloading() const;
  void stopping() const;
  /// `status`  one line, as `systemctl status` shows it.
  void alive(const std::string& status) const;

 private:
  std::multimap<std::string, UniqueFd, std::less<>> passed_;
};

}  // namespace gpumem::host
