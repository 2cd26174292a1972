#pragma once
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <chrono>
#include <optional>

#include "base/unique_fd.h"

namespace gpumem::cli {

/// While it lives, signals to this process are read here and do nothing by themselves. Signals of a fault
/// (SIGSEGV and its like) keep their effect. To be made before other threads are, which must not take them.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next signal.   Blocks.
  signalfd_siginfo next() const;
  /// The next signal; none if `other` becomes readable (-1: none), or the time passes, before one comes.
  std::optional<signalfd_siginfo> next_before(int other, std::chrono::milliseconds time) const;
  /// The next signal that asks this process to end or to stop. Other signals stay for next().
  std::optional<signalfd_siginfo> next_for_itself_before(int other, std::chrono::milliseconds time) const;
  /// Whether the signal asks this process to end, and did not find it ignoring that (nohup, a script's `&`).
  bool asks_to_end(const signalfd_siginfo& signal) const;

  /// The signals that were blocked before, which a command is to begin with.
  const sigset_t& before() const { return before_; }
  /// In a child, before it becomes a command: what SIGCHLD did before.
  void restore_child_signal() const { ::sigaction(SIGCHLD, &child_before_, nullptr); }

 private:
  sigset_t before_{};
  struct sigaction child_before_ {};
  sigset_t ends_{};  ///< signals that ask to end
  UniqueFd fd_, own_;
};

/// Stops this process, as job control does, until it is continued.
void stop_self();

/// Ends this process by `signal`, as if it had never been handled. No core is written: what ended first has.
[[noreturn]] void die_by(int signal);

}  // namespace gpumem::cli
