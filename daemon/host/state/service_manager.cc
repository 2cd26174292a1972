#include "daemon/host/state/service_manager.h"

#include <systemd/sd-daemon.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "daemon/host/state/passed_descriptors.h"

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

// False if it has not been sent.
bool notify(const std::string& state) { return ::sd_notify(kKeepEnvironment, state.c_str()) >= 0; }

}  // namespace

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

bool ServiceManager::is_there() const { return std::getenv("NOTIFY_SOCKET") != nullptr; }

const DescriptorStore* ServiceManager::store() const { return is_there() ? this : nullptr; }

// FDPOLL=0: it does not watch the descriptors, and so keeps those on which it cannot.
void ServiceManager::keep(LeaseId lease, int descriptor) const {
  const std::string state = "FDSTORE=1\nFDPOLL=0\nFDNAME=" + name_of(lease);
  constexpr pid_t kThis = 0;
  ::sd_pid_notify_with_fds(kThis, kKeepEnvironment, state.c_str(), &descriptor, 1);
}

bool ServiceManager::forget(std::span<const LeaseId> leases) const {
  constexpr std::uint64_t kPatience = 5'000'000;  // microseconds
  bool told = true;
  for (const LeaseId lease : leases) told = notify("FDSTOREREMOVE=1\nFDNAME=" + name_of(lease)) && told;
  ::sd_notify_barrier(kKeepEnvironment, kPatience);
  return told;
}

void ServiceManager::alive(const std::string& status) const { notify("WATCHDOG=1\nSTATUS=" + status); }

struct Watchdog::State {
  Mutex mutex;
  Condition changed;
  bool stopping GPUMEM_GUARDED_BY(mutex) = false;
  std::optional<std::string> answer GPUMEM_GUARDED_BY(mutex);

  void put(std::string line) {
    const MutexLock lock(mutex);
    answer = std::move(line);
    changed.notify_all();
  }
  // None: the watchdog ends.
  std::optional<std::string> await_answer() {
    const MutexLock lock(mutex);
    while (!answer && !stopping) changed.wait(mutex);
    return stopping ? std::nullopt : std::exchange(answer, std::nullopt);
  }
  // Whether the watchdog goes on.
  bool pause(std::chrono::microseconds interval) {
    const auto end = std::chrono::steady_clock::now() + interval;
    const MutexLock lock(mutex);
    while (!stopping && std::chrono::steady_clock::now() < end) changed.wait_until(mutex, end);
    return !stopping;
  }
  void stop() {
    const MutexLock lock(mutex);
    stopping = true;
    changed.notify_all();
  }
};

Watchdog::Watchdog(std::chrono::microseconds interval, Ask ask, Report report)
    : state_(std::make_shared<State>()),
      thread_([interval, state = state_, ask = std::move(ask), report = std::move(report)] {
        do {
          ask([state](std::string line) { state->put(std::move(line)); });
          const auto line = state->await_answer();
          if (!line) return;
          report(*line);
        } while (state->pause(interval));
      }) {}

Watchdog::~Watchdog() {
  state_->stop();
  thread_.join();
}

}  // namespace gpumem::host
