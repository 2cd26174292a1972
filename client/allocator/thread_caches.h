#pragma once

#include <pthread.h>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/allocator/thread_cache.h"

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

/// The thread caches of one allocator, and the batches of free blocks between them: what one cache has too
/// much of goes, in batches and by size class, to the next cache that has too little, without a look at the
/// heap. So a thread that only allocates and one that only frees do not meet at every block.
/// Threads  under the allocator's lock.
class ThreadCaches {
 public:
  using FlushTarget = ThreadCache::FlushTarget;
  /// `into`  frees a block that is flushed.
  explicit ThreadCaches(FlushTarget into) : into_(std::move(into)) {}

  /// Makes a cache for the calling thread, which has none for `number`.
  ThreadCache* add(const AllocatorNumber& number, const std::shared_ptr<ThreadCache::EngineRef>& engine);
  /// Flushes and removes `cache`, whose thread ends.
  void retire(ThreadCache& cache);

  /// Lets `cache` be used, whose owner has a lock. `committed`  bytes of the allocator.
  void use(ThreadCache& cache, StreamIndex legacy, std::uint64_t committed);

  /// Appends up to `most` free blocks of a class to `into`, out of the batches.
  void take(ClassIndex size_class, std::size_t most, std::vector<Block>& into);
  /// Makes space in `cache` for one more block of the class. False: it takes none.
  bool make_space(ThreadCache& cache, ClassIndex size_class);

  void flush();
  /// Flushes the batches, and `cache`, whose owner has the lock, if it is not null.
  void flush(ThreadCache* cache);
  /// Flushes what has not been used for `ticks` calls of this.
  void age(int ticks);

  /// Flushes all. Until resume(), the caches take no block.
  void stop();
  void resume();
  bool are_stopped() const { return stopped_; }

  /// Of all free blocks here.
  std::uint64_t bytes() const;
  /// Allocations that were served from caches.
  std::uint64_t hits(ClassIndex size_class) const;

 private:
  using Caches = std::vector<std::shared_ptr<ThreadCache>>;
  void flush_stopped(const Caches& caches);

  const FlushTarget into_;
  Caches caches_;  ///< by number
  bool stopped_ = false;
  std::uint64_t batch_budget_ = 0;
  std::array<std::vector<Block>, kClasses> batches_;
  std::uint64_t batch_bytes_ = 0;
  int idle_ticks_ = 0;                          ///< of the batches
  std::array<std::uint64_t, kClasses> hits_{};  ///< of threads that have ended
};

}  // namespace gpumem::allocator
