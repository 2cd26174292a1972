#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>

#include "client/shim/account_page.h"
#include "gpumem/bytes.h"

namespace gpumem::shim {

/// Keeps the figures of this process, and shows them in its account page if it has one.
/// Threads  any; no locks. It is never destroyed: its page stays mapped until the process ends.
class Account {
 public:
  Account() = default;
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  /// Creates the page `account.<pid>` in `folder`, readable by its owner. Once, before anything else.
  /// Errors  of the file system; then the figures are kept, but not shown.
  Result<void> show_in(const std::filesystem::path& folder);

  void used(Bytes more);
  void freed(Bytes less) { in_use_.fetch_sub(less.count, std::memory_order_relaxed); }
  void waited(std::chrono::nanoseconds time);
  /// `asked`  zero: it is not known how much.
  void denied(Bytes asked);

  Bytes in_use() const { return {in_use_.load(std::memory_order_relaxed)}; }
  Bytes peak() const { return {get(page_.load()->peak_bytes)}; }
  std::uint64_t denials() const { return get(page_.load()->denials); }
  std::chrono::nanoseconds waited() const {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(get(page_.load()->waited_ns)));
  }

 private:
  static std::uint64_t get(std::uint64_t& word) {
    return std::atomic_ref(word).load(std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> in_use_{0};
  AccountPage own_{};
  std::atomic<AccountPage*> page_{&own_};
};

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
