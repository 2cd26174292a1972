#pragma once
#include <pthread.h>

#include <csignal>
#include <string>
#include <string_view>

#include "base/program.h"
#include "daemon/kubernetes/claims/device_specs.h"

// The common parts of both drivers' main programs.

namespace gpumem::kubernetes {

/// Reads the command line; ends the process for --help, --version and usage errors (status 2).
/// `what_stays`  text for --help: the effects that remain when the program stops.
void parse(CLI::App& app, int argc, char** argv, std::string_view what_stays);

/// Adds the options for containers that both programs have. Parsing the command line makes `device_kind`
/// empty for `none`.
void add_container_options(CLI::App& app, DeviceSpecs::Options& specs, std::string& device_kind);

/// SIGINT and SIGTERM, which end a driver: made before any thread is started, so that none is ended by them.
/// A peer that has gone is an error of a call, and no signal.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
  }
  /// Blocks until one comes.
  void wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_{};
};

}  // namespace gpumem::kubernetes
