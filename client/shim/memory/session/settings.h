#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <type_traits>

#include "base/mutex.h"
#include "base/thread_guards.h"
#include "client/process/signal_watch.h"
#include "gpumem/bytes.h"
#include "gpumem/denial.h"
#include "gpumem/result.h"

namespace gpumem::shim {

/// The shim's settings, from the environment; `gpumem run` sets them.
struct Settings {
  Bytes limit{};                           ///< GPUMEM_LIMIT, of each device; zero: the job's, or the tenant's
  std::chrono::milliseconds wait{30'000};  ///< GPUMEM_WAIT: for memory that others hold
  std::string name;                        ///< GPUMEM_NAME, for people
  bool optional = false;                   ///< GPUMEM_OPTIONAL=1: without a broker, do without

  /// Errors  kInvalidArgument: a variable that says what cannot be read, by name.
  static Result<Settings> from_environment();
};

/// Whether the environment gives the process a slice before it starts the driver: GPUMEM_JOB, GPUMEM_LIMIT,
/// or a pod of Kubernetes. Other processes may be monitors, and see the device until then.
bool has_slice_from_start();

/// Decides which requests wait for memory that others hold. Frameworks answer a refusal by asking for a
/// little less, some 50 times in a row: after one wait in vain, requests that are not larger are answered at
/// once for some seconds, so that the whole row waits once. Threads  any.
class WaitPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kCascade{10};

  explicit WaitPolicy(std::chrono::milliseconds wait) : wait_(wait) {}

  /// How long a request for `bytes` may wait, which was refused without waiting at `now`. Zero: not at all.
  std::chrono::milliseconds wait_for(Bytes bytes, Clock::time_point now) const;
  /// One for `bytes` has waited in vain until `now`.
  void timed_out(Bytes bytes, Clock::time_point now);

 private:
  const std::chrono::milliseconds wait_;
  mutable Mutex mutex_;
  Bytes refused_ GPUMEM_GUARDED_BY(mutex_){};  ///< the largest that waited in vain
  Clock::time_point until_ GPUMEM_GUARDED_BY(mutex_){};
};

/// Whether a request for `bytes` that the broker refused with `error` may be granted without this process's
/// giving up any of the `own` bytes that it has: others hold the memory, or are ahead in the queue, or there
/// is no broker just now.
bool may_come_true(const GrowError& error, Bytes bytes, Bytes own);

/// Whether there is no broker, or none that answers: another one may come.
inline bool is_away(const Error& error) { return error.code == Code::kUnavailable; }
/// What a program is told that waits for one. `away`  why it waits.
std::string wait_for_broker_text(const Error& away, std::chrono::milliseconds wait);

/// Calls `ask`, which answers a Result, less and less often until `end`, as long as the broker is away.
/// Errors  of `ask`; kCancelled: by a signal (SignalWatch).
template <class Ask>
auto ask_while_away(WaitPolicy::Clock::time_point end, const Ask& ask) {
  constexpr std::chrono::milliseconds kLookAgain{20}, kLongestPause{500};
  const NotCancelled whole;
  auto answer = ask();
  if (answer || !is_away(answer.error())) return answer;
  using Failure = std::remove_cvref_t<decltype(answer.error())>;
  const client::SignalWatch signals;
  for (auto pause = kLookAgain; !answer && is_away(answer.error()) && WaitPolicy::Clock::now() < end;
       pause = std::min(2 * pause, kLongestPause)) {
    if (signals.seen() != 0) return decltype(answer)(Failure(signals.error()));
    std::this_thread::sleep_for(std::min<WaitPolicy::Clock::duration>(pause, end - WaitPolicy::Clock::now()));
    answer = ask();
  }
  return answer;
}

}  // namespace gpumem::shim
