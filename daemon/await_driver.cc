// A broker of a service manager that waits for a driver. systemd decides when a service starts which device
// files it may open. So a driver that has come needs another process: this one ends.
#include <poll.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <csignal>

#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/rpc/unavailable_server.h"

namespace gpumem {
namespace {

UniqueFd signals_as_file() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR2}) sigaddset(&signals, signal);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC));
}

// Of device files, of the loader's cache, and of the driver's own folder. A folder that cannot be watched is
// looked at again after a while all the same.
UniqueFd watch_folders(const std::filesystem::path& driver_folder) {
  UniqueFd changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  for (const char* folder : {"/dev", "/etc", driver_folder.c_str()})
    static_cast<void>(::inotify_add_watch(changes.get(), folder, IN_CREATE | IN_MOVED_TO));
  return changes;
}

// The next signal; 0: a trace of the driver has changed.
int await_change(int signals, const Options& options, const std::string& traces) {
  const UniqueFd changes = watch_folders(options.driver_folder);
  std::array<pollfd, 2> polled{{{signals, POLLIN, 0}, {changes.get(), POLLIN, 0}}};
  while (driver_traces(options.driver_folder) == traces) {
    ::poll(polled.data(), polled.size(), static_cast<int>(options.look_again.count()));
    signalfd_siginfo signal{};
    if ((polled[0].revents & POLLIN) != 0 && ::read(signals, &signal, sizeof signal) == sizeof signal)
      return static_cast<int>(signal.ssi_signo);
    std::array<char, 4096> told;
    while (::read(changes.get(), told.data(), told.size()) > 0) {
    }
  }
  return 0;
}

}  // namespace

Result<void> Daemon::await_driver(const Error& why, const std::string& traces,
                                  const host::ServiceManager& manager) {
  const std::string status = "gpumemd waits for the driver: " + why.message;
  auto server = rpc::UnavailableServer::start(status);
  if (!server) return server.error();
  auto socket = folder_.listen_on_api(options_.kernel);
  if (!socket) return socket.error();
  host::ApiListener listener({.socket = std::move(*socket),
                              .kernel = options_.kernel,
                              .administrators = &administrators_,
                              .connections = &connections_,
                              .serve = [&](UniqueFd one) { (*server)->serve(std::move(one)); }});
  listener.start();
  const auto timeout = manager.watchdog_timeout();
  const host::Watchdog alive(
      timeout.count() == 0 ? std::chrono::hours(1) : timeout / 2, [&](auto answer) { answer(status); },
      [&](const std::string& line) { manager.alive(line); });
  const UniqueFd signals = signals_as_file();
  spdlog::warn("{}", status);
  manager.ready();
  for (;;) {
    switch (await_change(signals.get(), options_, traces)) {
      case 0: return Error{Code::kUnavailable, "there may be a driver now: the broker starts anew"};
      case SIGHUP: break;  // the next broker reads the configuration
      case SIGUSR2:
        refuse_upgrade({Code::kUnavailable, status + "; restart it (systemctl restart gpumemd)"});
        break;
      default: manager.stopping(); return {};
    }
  }
}

}  // namespace gpumem
