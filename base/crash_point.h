#pragma once
#include <atomic>

#include "base/crash_points.h"

namespace gpumem {
namespace detail {

enum class CrashPlan : unsigned char { kUnread, kNone, kSome };
extern std::atomic<CrashPlan> crash_plan;
bool reach(CrashPoint point);

}  // namespace detail

// Tests set GPUMEM_CRASH_POINT=NAME[:N][=ACTION],... in the environment of a broker or of a client. ACTION is
// `kill` (by SIGKILL, as if nothing is given), `stop` (by SIGSTOP) or `fail`. It is done once, when the point
// is reached for the Nth time, the first if nothing is given. docs/crash-points.md.

/// This process may end here; and whether the call that follows fails instead of being made. Without a plan
/// it is one load. Threads  any.
[[nodiscard]] inline bool fails_at(CrashPoint point) {
  return detail::crash_plan.load(std::memory_order_relaxed) != detail::CrashPlan::kNone &&
         detail::reach(point);
}

/// The process may end here.
inline void crash_at(CrashPoint point) { static_cast<void>(fails_at(point)); }

}  // namespace gpumem
