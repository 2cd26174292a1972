#pragma once
#include <chrono>
#include <cstdint>

#include "gpumem/result.h"

namespace gpumem::client {

/// While one lives, the process notes each SIGINT, SIGTERM, SIGHUP and SIGQUIT that a handler of the program
/// takes, in any thread. A program that is told to end does not wait on for memory. Other signals are routine
/// (SIGCHLD, timers, profilers) and end no wait. A signal without a handler is the kernel's: it ends the
/// process or is ignored.
///
/// The kernel does not tell which signals were handled. Only the thread that ran the handler sees EINTR,
/// which does not name the signal, and the kernel may choose another thread than the one that waits. So a
/// function of the library stands in front of the handler while a thread waits. It notes the signal and calls
/// the handler. The handler keeps its flags, mask and stack. An action that the program sets meanwhile stays.
/// Threads  any. One that is made while its thread has another counts from the other's beginning.
class SignalWatch {
 public:
  /// How often a thread that waits looks.
  static constexpr std::chrono::milliseconds kLook{200};

  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The signal that came last since the beginning; 0: none.
  int seen() const;
  /// kCancelled, and which signal was seen.
  Error error() const;

 private:
  const SignalWatch* const outer_;
  const std::uint64_t begun_;
};

}  // namespace gpumem::client
