#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

namespace gpumem::client {

/// A mutex that is held while somebody waits for memory: who wants it gives up in time, and can be called
/// off.
class Turn {
 public:
  using Clock = std::chrono::steady_clock;

  /// Held for its lifetime.
  class Held {
   public:
    Held() = default;
    explicit Held(Turn& turn) : turn_(&turn) {}
    Held(Held&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(turn_, other.turn_);
      return *this;
    }
    ~Held() {
      if (turn_ != nullptr) turn_->release();
    }
    explicit operator bool() const { return turn_ != nullptr; }

   private:
    Turn* turn_ = nullptr;
  };

  /// Not held: `deadline` has passed, or `stop` was asked for.
  Held take(Clock::time_point deadline, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!free_.wait_until(lock, stop, deadline, [this] { return !taken_; })) return Held();
    taken_ = true;
    return Held(*this);
  }

 private:
  void release() {
    {
      const std::scoped_lock lock(mutex_);
      taken_ = false;
    }
    free_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable_any free_;
  bool taken_ = false;
};

}  // namespace gpumem::client
