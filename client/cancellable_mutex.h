#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "base/thread_guards.h"

namespace gpumem::client {

/// A mutex that may be held for as long as its owner waits for memory. Waiting for it has a deadline and can
/// be cancelled.
class CancellableMutex {
 public:
  using Clock = std::chrono::steady_clock;

  /// Holds the mutex for its own lifetime.
  class Guard {
   public:
    Guard() = default;
    explicit Guard(CancellableMutex& mutex) : mutex_(&mutex) {}
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&& other) noexcept {
      std::swap(mutex_, other.mutex_);
      return *this;
    }
    ~Guard() {
      if (mutex_ != nullptr) mutex_->release();
    }
    explicit operator bool() const { return mutex_ != nullptr; }

   private:
    CancellableMutex* mutex_ = nullptr;
  };

  /// An empty guard if `deadline` passed, or if `stop` was requested.
  Guard lock(Clock::time_point deadline, const std::stop_token& stop) {
    const NotCancelled whole;
    std::unique_lock waiting(mutex_);
    if (!free_.wait_until(waiting, stop, deadline, [this] { return !taken_; })) return Guard();
    taken_ = true;
    return Guard(*this);
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
