#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gpumem::allocator {

class ThreadCache;

/// The calling thread's caches, by the number of their allocator. One pointer in thread-local storage of the
/// kind that needs no call to be read, so that the library can also be loaded by dlopen.
/// Fork     a child's thread begins with none: its way leads to where forks are noticed.
class ThreadTable {
 public:
  static constexpr std::size_t kSize = 256;

  /// The cache of the calling thread for allocator `number`, or null.
  static ThreadCache* find(std::size_t number) {
    const ThreadTable* own = current_;
    return own == nullptr ? nullptr : own->found_[number];
  }
  /// Puts `cache` there, in place of what was there.
  static void set(std::size_t number, std::shared_ptr<ThreadCache> cache);
  /// Another number in each thread, never used again.
  static std::uint64_t thread_number();

 private:
  static ThreadTable& own();
  static void end(void* table);

  std::array<ThreadCache*, kSize> found_{};  ///< what `caches_` hold
  std::array<std::shared_ptr<ThreadCache>, kSize> caches_;
  std::uint64_t number_ = 0;

  static constinit thread_local ThreadTable* current_ [[gnu::tls_model("initial-exec")]];
};

/// Numbers of allocators, for ThreadTable. 0 is nobody's: nothing is cached for it.
class AllocatorNumber {
 public:
  AllocatorNumber();
  ~AllocatorNumber() { release(); }
  AllocatorNumber(const AllocatorNumber&) = delete;
  AllocatorNumber& operator=(const AllocatorNumber&) = delete;
  std::size_t get() const { return number_.load(std::memory_order_relaxed); }
  /// Nobody's from now on. Before another allocator has it, its caches have been stopped for ever.
  void release();

 private:
  std::atomic<std::size_t> number_{0};
};

}  // namespace gpumem::allocator
