#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/options.h"

namespace {

int fail(const gpumem::Error& error) {
  spdlog::critical("{}", error.message);
  return 1;
}

// Signals are taken by one thread, in turn, so that nothing is reloaded while it is being stopped.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  return signals;
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

}  // namespace

int main(int argc, char** argv) {
  const gpumem::Options options = gpumem::parse_options(argc, argv);
  if (auto started = gpumem::start_log(options.log_format, options.log_level); !started)
    return fail(started.error());
  if (options.check_config) {
    auto checked = gpumem::check_config(options);
    if (checked) return 0;
    std::fprintf(stderr, "%s\n", checked.error().message.c_str());
    return 1;
  }
  const sigset_t signals = block_signals();
  auto manager = gpumem::host::ServiceManager::of_process();
  auto daemon = gpumem::Daemon::start(options, manager);
  if (!daemon) return fail(daemon.error());
  manager.ready();
  for (int signal = 0; sigwait(&signals, &signal) == 0 && signal == SIGHUP;) reload(**daemon, manager);
  spdlog::info("stopping; clients keep the memory they have");
  manager.stopping();
  (*daemon)->stop();
  return 0;
}
