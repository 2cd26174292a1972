#pragma once
#include <algorithm>
#include <atomic>

#include "client/shim/memory/account.h"
#include "gpumem/bytes.h"

namespace gpumem::shim {

/// This process's usage of one device, compared with its limit. A request is reserved before it is made, so
/// two threads never pass the limit together. The account counts it once it is granted.
/// Invariant  used() <= limit().
/// Threads  any; no locks.
class Budget {
 public:
  /// `account`  is told of what is granted and freed; outlives this.
  Budget(Bytes limit, Account& account) : limit_(limit), account_(account) {}

  /// For granted() or unreserve() to follow. False: it would pass the limit, and nothing has changed.
  [[nodiscard]] bool reserve(Bytes bytes) {
    std::uint64_t now = used_.load(std::memory_order_relaxed);
    do {
      if (bytes.count > limit_.count - now) return false;
    } while (!used_.compare_exchange_weak(now, now + bytes.count, std::memory_order_relaxed));
    return true;
  }
  /// Reserves as much of `bytes` as the limit allows; how much that is.
  [[nodiscard]] Bytes reserve_up_to(Bytes bytes) {
    std::uint64_t now = used_.load(std::memory_order_relaxed);
    Bytes part;
    do {
      part = std::min(bytes, Bytes{limit_.count - now});
    } while (!used_.compare_exchange_weak(now, now + part.count, std::memory_order_relaxed));
    return part;
  }
  /// The process has what was reserved.
  void granted(Bytes bytes) { account_.used(bytes); }
  /// Takes a reservation back after a refusal.
  void unreserve(Bytes bytes) { used_.fetch_sub(bytes.count, std::memory_order_relaxed); }
  /// Granted memory was freed.
  void discharge(Bytes bytes) {
    unreserve(bytes);
    account_.freed(bytes);
  }

  Bytes limit() const { return limit_; }
  /// Includes reservations.
  Bytes used() const { return {used_.load(std::memory_order_relaxed)}; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> used_{0};
  Account& account_;
};

}  // namespace gpumem::shim
