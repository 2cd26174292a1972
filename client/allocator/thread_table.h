#pragma once
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gpumem::allocator {

class ThreadCache;

/// The calling thread's caches, by allocator number. It needs one pointer of thread-local storage in the
/// initial-exec model, which is read without a call. One pointer is small enough for dlopen.
/// Fork     a child's thread begins without caches, so its calls reach the fork check.
class ThreadTable {
 public:
  static constexpr std::size_t kSize = 256;

  /// The cache of the calling thread for allocator `number`, or null.
  static ThreadCache* find(std::size_t number) {
    const ThreadTable* own = current_;
    return own == nullptr ? nullptr : own->caches_[number].get();
  }
  /// Sets the calling thread's cache for allocator `number`, replacing the previous one. Not in a thread that
  /// is about to end.
  static void set(std::size_t number, std::shared_ptr<ThreadCache> cache);
  /// A number that is unique to the calling thread and never reused.
  static std::uint64_t thread_number();
  /// Whether the calling thread is about to end: it has no caches any more, and the driver's state of it may
  /// be gone.
  static bool is_ending();
  /// Before any thread allocates: what the program then registers for the end of its threads comes after
  /// what is registered here, and knows of it. Returns the key that its threads' tables go by.
  static pthread_key_t prepare();

 private:
  static ThreadTable& own();
  /// The table, for ever empty, of all threads that are about to end.
  static ThreadTable& of_ending_threads();
  static void end(void* table);

  std::array<std::shared_ptr<ThreadCache>, kSize> caches_;
  std::uint64_t number_ = 0;

  static constinit thread_local ThreadTable* current_ [[gnu::tls_model("initial-exec")]];
};

/// The number of an allocator in ThreadTable. 0 means none: nothing is cached.
class AllocatorNumber {
 public:
  AllocatorNumber();
  ~AllocatorNumber() { release(); }
  AllocatorNumber(const AllocatorNumber&) = delete;
  AllocatorNumber& operator=(const AllocatorNumber&) = delete;
  std::size_t get() const { return number_.load(std::memory_order_relaxed); }
  /// Releases the number. Its caches must have been stopped for good before, because another allocator may
  /// get it.
  void release();

 private:
  std::atomic<std::size_t> number_{0};
};

}  // namespace gpumem::allocator
