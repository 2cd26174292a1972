#pragma once
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

}  // namespace gpumem::shim
