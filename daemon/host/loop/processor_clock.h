#pragma once
#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/core/words/types.h"

namespace gpumem::host {

/// How long the calling thread has run on a processor. Time in which the kernel let others run does not
/// count. The kernel's figure takes a system call. So it is read only if kShort has passed since the reading
/// before; a shorter time counts whole.
///
/// Threads  one.
class ProcessorClock {
 public:
  using Clock = core::TimePoint (*)();
  static constexpr core::Duration kShort = std::chrono::microseconds(50);

  /// `wall`  the time that passes. `processor`  the kernel's figure for the thread; both steady.
  ProcessorClock(Clock wall, Clock processor) : wall_(wall), processor_(processor) {}

  core::TimePoint operator()() {
    const core::TimePoint now = wall_();
    const core::Duration passed = now - std::exchange(last_, now);
    core::Duration ran = passed;
    if (passed < kShort) {
      short_ += passed;
    } else {
      const core::TimePoint used = processor_();
      const core::Duration since = used - std::exchange(used_, used) - std::exchange(short_, {});
      ran = std::clamp(since, core::Duration::zero(), passed);
    }
    return time_ += ran;
  }

 private:
  Clock wall_;
  Clock processor_;
  core::TimePoint last_ = wall_();
  core::TimePoint used_ = processor_();
  core::Duration short_{};  ///< counted since the kernel was asked
  core::TimePoint time_{};
};

}  // namespace gpumem::host
