#pragma once
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/run/group_sentinel.h"
#include "client/cli/run/signals.h"
#include "gpumem/result.h"

namespace gpumem::cli {

// Exit statuses of programs that start others, as of env(1) and timeout(1).
inline constexpr int kOwnFailure = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

using Environment = std::map<std::string, std::string>;

/// The environment of this process.
Environment own_environment();
/// As a program gets it: NAME=VALUE.
std::vector<std::string> assignments(const Environment& environment);

struct CommandOptions {
  std::vector<std::string> words;  ///< the program, looked for in PATH, and its arguments; not empty
  Environment environment;
  /// Runs in the new process before it becomes the program. Only what is safe after a fork of threads.
  /// False: it ends with kOwnFailure.
  std::function<bool()> before_exec{};
  /// Runs in this process meanwhile, with the new one's pid. After an error the program must not begin:
  /// before_exec has to answer false.
  std::function<Result<void>(pid_t)> meanwhile{};
};

/// Why a command has not run, and the exit status that goes with it.
struct CommandError : Error {
  int status;
  CommandError(Error error, int with = kOwnFailure)  // NOLINT(*-explicit-*)
      : Error(std::move(error)), status(with) {}
};

/// Told of the end of a child that is not the command: its pid, and what waitpid() tells.
using OtherEnded = std::function<void(pid_t, int)>;

/// A program that this process stands for. It runs in this process's group, so the terminal treats both as
/// one job. Descendants that it leaves behind become children of this process, which reaps them.
/// Invariant  the program is waited for, or has not been started.
class Command {
 public:
  /// Starts it, with the signal mask of `signals.before()`.
  /// Errors  no such program (kNotFound), or one that cannot be executed; no more processes; those of
  ///         `meanwhile`; kInternal (before_exec has failed).
  static Result<Command, CommandError> start(const CommandOptions& options, const Signals& signals);

  pid_t pid() const { return pid_; }

  /// Passes signals on to the program, stops and continues with it, and waits for its end. What the terminal
  /// or another process sends to the whole group reaches the program by itself and is not passed on. Answers
  /// what waitpid() tells.   Blocks.
  int wait(const Signals& signals, const OtherEnded& other_ended = {});

  /// Whether a descendant still runs. To be asked when the program has ended.
  static bool leaves_others();

 private:
  explicit Command(pid_t pid) : pid_(pid) {}
  bool goes_on() const;
  std::optional<int> reap(const OtherEnded& other_ended, GroupSentinel& sentinel) const;
  void pass_on(const signalfd_siginfo& signal, GroupSentinel& sentinel) const;

  pid_t pid_;
};

/// Ends this process as the command has ended: by the same signal. Answers the exit status, if it had one.
int end_as(int wait_status);

}  // namespace gpumem::cli
