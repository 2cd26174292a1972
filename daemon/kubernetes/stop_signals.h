#pragma once
#include <pthread.h>

#include <csignal>

namespace gpumem::kubernetes {

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
