#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

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

/// How long a broker's answers are waited for in all, before a command begins.
inline constexpr std::chrono::seconds kAnswerPatience{25};

/// Waits until `done` can be read or `patience` is over. A signal that asks to end ends this process
/// meanwhile, one that stops stops it. False: the time is over.
bool await_answer(const UniqueFd& done, const Signals& signals, std::chrono::milliseconds patience);

/// Does `ask` in a thread of its own, where gRPC starts its threads, and waits for it here, where signals are
/// heard: gRPC cannot be called off, and blocks for good where it gets no threads (RLIMIT_NPROC).
/// Errors  those of `ask`; kResourceExhausted: no thread; kDeadlineExceeded: it has not returned within
///         kAnswerPatience. Then it never does; end this process by std::_Exit(), as gRPC's own end would
///         block, too (`is_stuck`).   Blocks.
template <class T>
class AnswerInTime {
 public:
  AnswerInTime(std::function<Result<T>()> ask, const Signals& signals) {
    struct Asked {
      std::function<Result<T>()> ask;
      UniqueFd done{::eventfd(0, EFD_CLOEXEC)};
      std::optional<Result<T>> answer;
    };
    const auto asked = std::make_shared<Asked>();
    asked->ask = std::move(ask);
    try {
      std::thread([asked] {
        asked->answer.emplace(asked->ask());
        ::eventfd_write(asked->done.get(), 1);
      }).detach();
    } catch (const std::system_error& failed) {
      answer_ =
          Error{Code::kResourceExhausted, std::string("cannot start a thread (ulimit -u): ") + failed.what()};
      return;
    }
    is_stuck_ = !await_answer(asked->done, signals, kAnswerPatience);
    if (!is_stuck_) answer_ = std::move(*asked->answer);
  }

  Result<T>& answer() { return answer_; }
  bool is_stuck() const { return is_stuck_; }

 private:
  bool is_stuck_ = false;
  Result<T> answer_ = Error{Code::kDeadlineExceeded,
                            "the broker does not answer, or this user may have no more threads (ulimit -u); "
                            "waited for 25 s (systemctl status gpumemd)"};
};

}  // namespace gpumem::cli
