#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>

#include "base/program.h"
#include "cuda/library.h"
#include "daemon/configuration.h"
#include "daemon/daemon.h"
#include "daemon/host/system/short_slices.h"
#include "daemon/host_memory.h"
#include "daemon/upgrade.h"

namespace {

// Signals are taken by one thread, in turn, so that nothing is reloaded while it is being stopped.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR2}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  return signals;
}

// The next signal; 0: it is time for Daemon::look_again().
int await(const sigset_t& signals, std::chrono::milliseconds look_again) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(look_again);
  const timespec pause{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds(look_again - seconds).count()};
  for (;;) {
    const int signal = ::sigtimedwait(&signals, nullptr, &pause);
    if (signal > 0) return signal;
    if (errno == EAGAIN) return 0;
  }
}

void reload(gpumem::Daemon& daemon, const gpumem::host::ServiceManager& manager) {
  manager.reloading();
  if (auto reloaded = daemon.reload(); reloaded) {
    spdlog::info("configuration reloaded");
  } else {
    spdlog::error("configuration not reloaded, the old one stays in force: {}", reloaded.error().message);
  }
  manager.ready();
}

// Returns only if there can be no upgrade. From the hand-over on there is no way back: whoever starts the
// broker again lets it take over from the journal.
void upgrade(std::unique_ptr<gpumem::Daemon>& daemon, const gpumem::host::ServiceManager& manager,
             const gpumem::Successor& successor) {
  if (auto ready = successor.check(); !ready) {
    spdlog::error("not upgraded: {}", ready.error().message);
    daemon->refuse_upgrade(ready.error());
    return;
  }
  spdlog::info("handing over to the next broker; clients keep the memory they have");
  manager.reloading();
  const gpumem::host::NamedDescriptors descriptors = daemon->hand_over();
  daemon.reset();
  std::exit(gpumem::fail(successor.become(descriptors)));
}

}  // namespace

int main(int argc, char** argv) {
  gpumem::cuda::Library::pass_by_drop_in();
  const gpumem::Successor successor(argc, argv);
  const gpumem::Options options = gpumem::parse_options(argc, argv);
  if (auto started = gpumem::start_log(options.log.format, options.log.level); !started)
    return gpumem::fail(started.error());
  if (options.try_host_node) return gpumem::try_host_node(options.driver_folder, *options.try_host_node);
  if (options.check_config) {
    auto checked = gpumem::check_config(options);
    if (checked) return 0;
    std::fprintf(stderr, "%s\n", checked.error().message.c_str());
    return 1;
  }
  if (options.upgrade) {
    const auto folder = gpumem::runtime_folder_of(options);
    const auto upgraded = folder ? gpumem::upgrade(*folder) : gpumem::Result<std::string>(folder.error());
    std::fprintf(upgraded ? stdout : stderr, "%s\n",
                 upgraded ? upgraded->c_str() : upgraded.error().message.c_str());
    return upgraded ? 0 : 1;
  }
  const sigset_t signals = block_signals();
  gpumem::host::ask_for_short_slices();
  const gpumem::host::ServiceManager manager;
  auto daemon = gpumem::Daemon::start(options, manager, gpumem::host::PassedDescriptors::of_process());
  if (!daemon) return gpumem::fail(daemon.error());
  if (!*daemon) return 0;
  manager.ready();
  for (bool goes_on = true; goes_on;) {
    switch (await(signals, options.look_again)) {
      case 0: (*daemon)->look_again(); break;
      case SIGHUP: reload(**daemon, manager); break;
      case SIGUSR2: upgrade(*daemon, manager, successor); break;
      default: goes_on = false;
    }
  }
  spdlog::info("stopping; clients keep the memory they have");
  manager.stopping();
  (*daemon)->stop();
  return 0;
}
