#pragma once
#include <algorithm>
#include <atomic>

#include "client/shim/memory/account.h"
#include "gpumem/bytes.h"

namespace gpumem::shim {

/// What this process uses of one device, held against its limit. A request is charged before it is made, so
/// two threads never pass the limit together.
/// Invariant  used() <= limit().
/// Threads  any; no locks.
class Budget {
 public:
  /// `account`  is told of every change; outlives this.
  Budget(Bytes limit, Account& account) : limit_(limit), account_(account) {}

  /// False: it would pass the limit, and nothing has changed.
  [[nodiscard]] bool charge(Bytes bytes) {
    std::uint64_t now = used_.load(std::memory_order_relaxed);
    do {
      if (bytes.count > limit_.count - now) return false;
    } while (!used_.compare_exchange_weak(now, now + bytes.count, std::memory_order_relaxed));
    account_.used(bytes);
    return true;
  }
  /// Charges as much of `bytes` as the limit allows; how much that is.
  [[nodiscard]] Bytes charge_up_to(Bytes bytes) {
    std::uint64_t now = used_.load(std::memory_order_relaxed);
    Bytes part;
    do {
      part = std::min(bytes, Bytes{limit_.count - now});
    } while (!used_.compare_exchange_weak(now, now + part.count, std::memory_order_relaxed));
    account_.used(part);
    return part;
  }
  void discharge(Bytes bytes) {
    used_.fetch_sub(bytes.count, std::memory_order_relaxed);
    account_.freed(bytes);
  }

  Bytes limit() const { return limit_; }
  Bytes used() const { return {used_.load(std::memory_order_relaxed)}; }

 private:
  const Bytes limit_;
  std::atomic<std::uint64_t> used_{0};
  Account& account_;
};

}  // namespace gpumem::shim
