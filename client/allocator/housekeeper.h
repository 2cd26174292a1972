#pragma once
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace gpumem::allocator {

/// Tells what has not been needed for so long that it may go back, by the least that was free between ticks.
class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTicks = 8;  ///< in the idle time
  static constexpr int kWindow =
      5;  ///< so many ticks in a row; the rest is for threads' caches to be given up
  static constexpr int kCacheTicks = 2;

  explicit IdleWatch(std::chrono::milliseconds idle) : tick_(idle / kTicks) {}

  bool is_due(Clock::time_point now) const { return now >= next_; }
  /// `low_water`  the least that was free since the last call. Answers what was free all through the window.
  std::uint64_t tick(Clock::time_point now, std::uint64_t low_water);

 private:
  const std::chrono::nanoseconds tick_;
  Clock::time_point next_{};
  std::array<std::uint64_t, kWindow> low_{};
  std::size_t at_ = 0;
};

/// Whether use goes up, by the growths there were.
class Trend {
 public:
  using Clock = std::chrono::steady_clock;

  void note(Clock::time_point now, std::uint64_t bytes);
  /// How much to ask for ahead of need; zero: use does not go up.
  std::uint64_t ahead(Clock::time_point now, std::uint64_t committed) const;

 private:
  Clock::time_point last_{};
  std::uint64_t sum_ = 0;
  int growths_ = 0;
};

/// A thread that calls `work` when a tick has passed or somebody rings.
class Housekeeper {
 public:
  Housekeeper(std::chrono::milliseconds tick, std::function<void()> work);
  ~Housekeeper();
  Housekeeper(const Housekeeper&) = delete;
  Housekeeper& operator=(const Housekeeper&) = delete;
  void ring();

 private:
  void run();

  const std::chrono::milliseconds tick_;
  const std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace gpumem::allocator
