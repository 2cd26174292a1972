#pragma once
#include <sys/eventfd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/unique_fd.h"
#include "client/cli/run/signals.h"
#include "gpumem/result.h"

namespace gpumem::cli {

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
