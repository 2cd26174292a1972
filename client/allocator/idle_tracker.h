#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

namespace gpumem::allocator {

/// Finds how much free memory has been idle for long enough to be returned: the least that was free between
/// ticks, over a window of ticks.
class IdleTracker {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTicks = 8;   ///< in the idle time
  static constexpr int kWindow = 5;  ///< ticks that count; the others leave time to flush idle thread caches
  static constexpr int kCacheTicks = 2;

  explicit IdleTracker(std::chrono::milliseconds idle) : tick_(idle / kTicks) {}

  bool is_due(Clock::time_point now) const { return now >= next_; }
  /// `low_water`  the least that was free since the last call. Returns what was free during the whole window.
  std::uint64_t tick(Clock::time_point now, std::uint64_t low_water) {
    next_ = now + tick_;
    low_[at_++ % low_.size()] = low_water;
    return at_ < low_.size() ? 0 : *std::ranges::min_element(low_);
  }

 private:
  const std::chrono::nanoseconds tick_;
  Clock::time_point next_{};
  std::array<std::uint64_t, kWindow> low_{};
  std::size_t at_ = 0;
};

}  // namespace gpumem::allocator
