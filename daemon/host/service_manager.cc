#include "daemon/host/service_manager.h"

#include <systemd/sd-daemon.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace gpumem::host {
namespace {

// With it, a service manager can tell this reload from the one before.
std::uint64_t monotonic_microseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000;
}

// The variables stay: the broker starts no programs, and the process may have threads that read them.
constexpr int kKeepEnvironment = 0;

void notify(const std::string& state) { ::sd_notify(kKeepEnvironment, state.c_str()); }

}  // namespace

ServiceManager ServiceManager::of_process() {
  ServiceManager manager;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(kKeepEnvironment, &names);
  for (int i = 0; i < count; ++i) {
    manager.passed_.emplace(names[i], UniqueFd(SD_LISTEN_FDS_START + i));
    std::free(names[i]);
  }
  std::free(static_cast<void*>(names));
  return manager;
}

std::optional<UniqueFd> ServiceManager::take(std::string_view name) {
  const auto found = passed_.find(name);
  if (found == passed_.end()) return std::nullopt;
  return std::move(passed_.extract(found).mapped());
}

std::chrono::microseconds ServiceManager::watchdog_timeout() const {
  std::uint64_t timeout = 0;
  if (::sd_watchdog_enabled(kKeepEnvironment, &timeout) <= 0) timeout = 0;
  return std::chrono::microseconds(timeout);
}

void ServiceManager::ready() const { notify("READY=1"); }

void ServiceManager::reloading() const {
  notify("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(monotonic_microseconds()));
}

void ServiceManager::stopping() const { notify("STOPPING=1\nSTATUS=stopping; clients keep their memory"); }

void ServiceManager::alive(const std::string& status) const { notify("WATCHDOG=1\nSTATUS=" + status); }

}  // namespace gpumem::host
