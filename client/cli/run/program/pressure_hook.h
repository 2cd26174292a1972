#pragma once

#include <sys/types.h>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// An address of the form `http://HOST[:PORT][/PATH]`.
struct HttpUrl {
  std::string host;
  std::string port;
  std::string path;
};

/// Errors  kInvalidArgument: of another form; https is not spoken.
Result<HttpUrl> parse_url(const std::string& url);

/// Posts `json` to `url`. Good is an answer of 200 to 299, whose head has come within `patience`, all in all.
/// Answers of 100 to 199 that precede it are passed over, up to 16. Its body is not read.
/// Errors  kUnavailable: no such answer in time, another one, or one whose head is longer than 16 KiB.
/// Blocks  for `patience` at most.
Result<void> post_json(const HttpUrl& url, const std::string& json, std::chrono::milliseconds patience);

/// What a program is asked when the broker wants memory back.
struct PressureAsked {
  std::string device;  ///< UUID
  Bytes bytes;
  std::chrono::milliseconds within{0};
  std::string name;
  pid_t pid = 0;  ///< of the command; 0: none
};

/// Asks a program to let go of memory: by a command of the shell, or by an HTTP POST.
/// Threads  ask() and stop() of different ones; child_ended() of the one that reaps.
class PressureHook {
 public:
  /// `text`  begins with `http://`, or is a command. Empty: nobody can be asked.
  /// Errors  kInvalidArgument: another URL.
  static Result<PressureHook> parse(const std::string& text);
  PressureHook(PressureHook&& other) noexcept
      : command_(std::move(other.command_)), url_(std::move(other.url_)) {}

  bool is_set() const { return url_.has_value() || !command_.empty(); }
  /// Returns when the program says that it has let go of memory: the command has ended with status 0, or the
  /// POST was answered with 200 to 299. The command has GPUMEM_ASKED_BYTES, GPUMEM_DEADLINE_SECONDS,
  /// GPUMEM_DEVICE and, if there is one, GPUMEM_COMMAND_PID; the POST's JSON has the same. Errors  kAborted
  /// (another status), kUnavailable, kCancelled (stopped), kDeadlineExceeded (its time is over: it is ended,
  /// by SIGKILL before the next is asked if it has not heeded SIGTERM; what it has started and left in its
  /// group, when it ends). Blocks.
  Result<void> ask(const PressureAsked& asked);
  /// A child of this process has ended, with what waitpid() tells, and is not waited for yet.
  void child_ended(pid_t pid, int status);
  /// ask() waits no longer. A command that runs is ended.
  void stop();

 private:
  PressureHook() = default;
  Result<void> run(const PressureAsked& asked);
  void end_overdue();
  void await_overdue();

  std::string command_;
  std::optional<HttpUrl> url_;
  std::mutex mutex_;
  std::condition_variable changed_;
  pid_t overdue_ = 0;  ///< was asked to end, and has not: a group of its own
  bool is_running_ = false;
  bool is_stopped_ = false;
  std::map<pid_t, int> ended_;  ///< while a command runs: children that have
};

}  // namespace gpumem::cli
