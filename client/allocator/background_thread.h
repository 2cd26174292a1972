#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

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
  std::uint64_t tick(Clock::time_point now, std::uint64_t low_water);

 private:
  const std::chrono::nanoseconds tick_;
  Clock::time_point next_{};
  std::array<std::uint64_t, kWindow> low_{};
  std::size_t at_ = 0;
};

/// Whether usage is rising, judged by recent growths.
class GrowthTrend {
 public:
  using Clock = std::chrono::steady_clock;

  void note(Clock::time_point now, std::uint64_t bytes);
  /// How much to request ahead of need. Zero if usage is not rising.
  std::uint64_t ahead(Clock::time_point now, std::uint64_t committed) const;

 private:
  Clock::time_point last_{};
  std::uint64_t sum_ = 0;
  int growths_ = 0;
};

/// A thread that calls `work` after each tick, and whenever wake() is called.
class BackgroundThread {
 public:
  BackgroundThread(std::chrono::milliseconds tick, std::function<void()> work);
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;
  void wake();

 private:
  void run();

  const std::chrono::milliseconds tick_;
  const std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace gpumem::allocator
