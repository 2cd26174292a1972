#pragma once
#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace gpumem {

/// While it is there, its thread gets no SIGPIPE for what it writes to a pipe that nobody reads: only the
/// write fails. For what a library says on standard error, which is its program's.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pending;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec at_once{};
    while (!was_pending_ && ::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;  ///< another one, which is the program's
};

}  // namespace gpumem
