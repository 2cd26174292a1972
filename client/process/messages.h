#pragma once
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "client/process/background_task.h"

namespace gpumem::client {

/// Writes `text` as one line of this process on standard error: `gpumem: text`. It is whole beside other
/// threads' lines.
void say(std::string_view text);

/// How often something is told: once in a while.   Threads  any.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{30};

  /// Whether it may be told at `now`: not less than kPause after the time before.
  bool begin(Clock::time_point now);

 private:
  static constexpr Clock::rep kNever = Clock::duration::min().count();
  std::atomic<Clock::rep> last_{kNever};
};

/// Says why requests were refused, once in a while: a program that probes for memory is refused often.
/// Threads  any.
class RefusalMessages {
 public:
  using Clock = Pace::Clock;
  static constexpr std::chrono::seconds kPause = Pace::kPause;

  /// Says `text`, unless something was said less than kPause before `now`. Whether it was said.
  bool tell(std::string_view text, Clock::time_point now = Clock::now());

 private:
  Pace pace_;
  std::atomic<unsigned> left_out_{0};
};

/// Tells of one wait, from its beginning to its end: a line once the wait has lasted kShort, and a line at
/// its end. A shorter wait is not told of, and a wait soon after another one later: a program may wait in a
/// loop.
class WaitNotice {
 public:
  using Clock = Pace::Clock;
  static constexpr std::chrono::seconds kShort{1};

  /// `text`  the first line. `pace`  of all waits; outlives this. `begun`  when the wait began.
  WaitNotice(Pace& pace, std::string text, Clock::time_point begun = Clock::now());
  ~WaitNotice();
  WaitNotice(const WaitNotice&) = delete;
  WaitNotice& operator=(const WaitNotice&) = delete;

 private:
  bool tell();

  Pace& pace_;
  const std::string text_;
  const Clock::time_point begun_;
  bool is_told_ = false;  ///< by the task, and read when that has ended
  BackgroundTask task_;
};

}  // namespace gpumem::client
