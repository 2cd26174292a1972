#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/thread_guards.h"
#include "client/allocator/span.h"
#include "client/process/signal_watch.h"

namespace gpumem::allocator {

/// The threads of one allocator that lack memory. One at a time grows. A thread that waits for memory of
/// other processes lets threads go first that do not wait. It is woken when the free memory may be enough.
/// Threads  under the allocator's lock.
class GrowthQueue {
 public:
  using Clock = std::chrono::steady_clock;
  struct Waiter {
    std::uint64_t bytes = 0;                       ///< that it needs
    StreamIndex stream = kNoStream;                ///< that it needs them for
    ClassIndex slots = kNoClass;                   ///< of which one is enough, too
    bool waits = false;                            ///< for memory that others hold now
    bool woken = false;                            ///< there may be enough
    std::stop_source stop{std::nostopstate};       ///< calls its growth off
    std::optional<client::SignalWatch> signals{};  ///< of one that waits
    /// Whether the program was told to end.
    bool is_interrupted() const { return signals && signals->seen() != 0; }
  };

  /// Waits until the waiter may grow. False: look again, because it was woken or interrupted, the deadline
  /// has passed, or this is closed.
  bool take_turn(Waiter& waiter, Clock::time_point deadline, Mutex& lock) GPUMEM_REQUIRES(lock) {
    const NotCancelled whole;
    const int asks = waiter.waits ? 0 : 1;
    askers_ += asks;  // nothing below throws
    bool mine = false;
    while (!closed_ && !std::exchange(waiter.woken, false)) {
      if (mine = may_grow(waiter); mine) break;
      if (!waiter.waits) {
        if (growing_ != nullptr && growing_->waits) growing_->stop.request_stop();
        changed_.wait(lock);
      } else if (Clock::now() < deadline && !waiter.is_interrupted()) {
        changed_.wait_until(lock, std::min(deadline, Clock::now() + client::SignalWatch::kLook));
      } else {
        break;
      }
    }
    askers_ -= asks;
    if (mine) {
      waiter.stop = {};
      growing_ = &waiter;
    } else {
      changed_.notify_all();
    }
    return mine;
  }
  /// No effect if it is another one's turn.
  void end_turn(const Waiter& waiter) {
    if (growing_ != &waiter) return;
    growing_ = nullptr;
    changed_.notify_all();
  }

  /// The waiter waits for memory that others hold, until leave().
  void begin_to_wait(Waiter& waiter) {
    waiter.waits = true;
    waiters_.push_back(&waiter);
  }
  /// Ends the waiter's turn, too. Any waiter may leave.
  void leave(Waiter& waiter) {
    end_turn(waiter);
    if (std::erase(waiters_, &waiter) != 0) changed_.notify_all();
  }
  bool is_empty() const { return waiters_.empty(); }
  /// Wakes the waiters that `free` bytes may be enough for, or a `slot` of such a class for the stream `of`.
  void wake(std::uint64_t free, ClassIndex slot = kClasses + 1, StreamIndex of = kNoStream) {
    if (is_empty()) return;
    for (Waiter* waiter : waiters_) {
      const bool serves = waiter->slots == slot && (of == kNoStream || of == waiter->stream);
      if (waiter->bytes > free && !serves) continue;
      waiter->woken = true;
      waiter->stop.request_stop();
    }
    changed_.notify_all();
  }

  /// Calls the growth in progress off. From now on nobody gets a turn.
  void close() {
    closed_ = true;
    if (growing_ != nullptr) growing_->stop.request_stop();
    changed_.notify_all();
  }
  /// Waits until nobody grows or waits.
  void drain(Mutex& lock) GPUMEM_REQUIRES(lock) {
    while (growing_ != nullptr || !is_empty()) changed_.wait(lock);
  }

 private:
  bool may_grow(const Waiter& waiter) const { return growing_ == nullptr && (!waiter.waits || askers_ == 0); }

  Condition changed_;
  std::vector<Waiter*> waiters_;
  Waiter* growing_ = nullptr;  ///< the waiter whose turn it is
  int askers_ = 0;             ///< for a turn that will not wait
  bool closed_ = false;
};

}  // namespace gpumem::allocator
