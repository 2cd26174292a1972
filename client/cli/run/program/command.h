#pragma once
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/run/program/group_detector.h"
#include "client/cli/run/program/signals.h"
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

/// Told of the end of a child that is not the command: its pid, and what waitpid() tells. It is not waited
/// for yet, so that its pid, and the group of that number, are nobody else's.
using OtherEnded = std::function<void(pid_t, int)>;

/// Waits for a child that has ended, if there is one. False: there is none.
bool reap_next(const OtherEnded& ended);

/// A program that this process stands for. It runs in this process's group, so the terminal treats both as
/// one job. Descendants that it leaves behind become children of this process, which reaps them. If this
/// process is killed, so is the program, but not its descendants.
/// Invariant  the program is waited for, or has not been started. Threads  of the one that started it.
class Command {
 public:
  /// Starts it, with the signal mask of `signals.before()`. Signals that come meanwhile are passed on, too.
  /// Threads  the main one: the kernel ends the program with the thread that started it.
  /// LISTEN_PID and WATCHDOG_PID name it if they have named this process; LISTEN_PIDFDID is left out then.
  /// Errors  no such program (kNotFound), or one that cannot be executed; no more processes; those of
  ///         `meanwhile`; kInternal (before_exec has failed).
  static Result<Command, CommandError> start(const CommandOptions& options, const Signals& signals);

  pid_t pid() const { return pid_; }

  /// Passes signals on to the program, stops and continues with it, and waits for its end. A signal to the
  /// whole process group, or from a service manager to its whole unit, reaches the program by itself and is
  /// not passed on. Answers what waitpid() tells.   Blocks.
  int wait(const Signals& signals, const OtherEnded& other_ended = {});

  /// Whether a descendant still runs. To be asked when the program has ended.
  static bool leaves_others();

 private:
  explicit Command(pid_t pid) : pid_(pid) {}
  int begin(int channel, const Signals& signals);
  void heed(const signalfd_siginfo& signal, const OtherEnded& other_ended);
  bool goes_on() const;
  void reap(const OtherEnded& other_ended);
  bool has_got(const signalfd_siginfo& signal);
  void pass_on(const signalfd_siginfo& signal);
  bool note_continued(const signalfd_siginfo& signal);

  pid_t pid_;
  /// The processes that continued this one, and not the command, since it last read a SIGCONT.
  std::vector<pid_t> wakers_;
  GroupDetector detector_ = GroupDetector::none();
  bool has_begun_ = false;    ///< to be the program: until then it blocks all signals
  std::optional<int> ended_;  ///< the status that waitpid() returned
};

/// Ends this process as the command has ended: by the same signal. Answers the exit status, if it had one.
int end_as(int wait_status);

}  // namespace gpumem::cli
