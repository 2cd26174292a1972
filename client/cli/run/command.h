#pragma once
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

struct CommandOptions {
  std::vector<std::string> words;  ///< the program, looked for in PATH, and its arguments; not empty
  Environment environment;
  /// Runs in the new process before it becomes the program. Only what is safe after a fork of threads.
  /// False: it ends with kOwnFailure.
  std::function<bool()> before_exec{};
};

/// What else is to be done while a program runs.
struct Watch {
  int readable = -1;                              ///< calls `wake` whenever it can be read
  std::chrono::milliseconds period{-1};           ///< and at least this often; -1: never
  std::function<void()> wake{};                   ///< must not block
  std::function<void(pid_t, int)> other_ended{};  ///< another child has, with what waitpid() tells
};

/// A program that this process stands for. It runs in this process's group, so the terminal treats both as
/// one job. Descendants that it leaves behind become children of this process, which reaps them.
/// Invariant  the program is waited for, or has not been started.
class Command {
 public:
  /// Starts it, with the signal mask of `signals.before()`.
  /// Errors  kNotFound (no such program), kPermissionDenied (it cannot be executed), kResourceExhausted,
  ///         kInternal (before_exec has failed).
  static Result<Command> start(const CommandOptions& options, const Signals& signals);

  pid_t pid() const { return pid_; }

  /// Passes signals on to the program, stops and continues with it, and waits for its end. Signals of the
  /// terminal reach the whole group by themselves and are not passed on. Answers what waitpid() tells.
  /// Blocks.
  int wait(const Signals& signals, const Watch& watch = {});

  /// Whether a descendant still runs. To be asked when the program has ended.
  static bool leaves_others();

 private:
  explicit Command(pid_t pid) : pid_(pid) {}
  std::optional<int> reap(const Watch& watch) const;
  void pass_on(const signalfd_siginfo& signal) const;

  pid_t pid_;
};

/// The exit status of a command that could not be started.
int status_of(const Error& error);

/// Ends this process as the command has ended: by the same signal. Answers the exit status, if it had one.
int end_as(int wait_status);

}  // namespace gpumem::cli
