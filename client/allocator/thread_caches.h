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

/// The thread caches of one allocator, and the batches of free blocks between them. Surplus blocks of a cache
/// on the legacy default stream go into a batch, by size class. A cache that has too few takes them from
/// there. So a thread that only allocates and one that only frees do not meet at every block.
/// Threads  under the allocator's lock.
class ThreadCaches {
 public:
  explicit ThreadCaches(CacheSink& into) : into_(into) {}

  /// Makes a cache for the calling thread, which has none for `number`.
  ThreadCache* add(const AllocatorNumber& number, const std::shared_ptr<ThreadCache::EngineRef>& engine,
                   StreamPort& port);
  /// Flushes and removes `cache`, whose thread ends.
  void retire(ThreadCache& cache);

  /// The blocks of `cache` for `stream`, whose owner has the lock. Null if there are none. `committed`  bytes
  /// of the allocator.
  CachedBlocks* use(ThreadCache& cache, StreamIndex stream, bool is_legacy, std::uint64_t committed);
  /// Makes a place for the blocks of `stream` in `cache`, as ThreadCache::add.
  CachedBlocks* add_stream(ThreadCache& cache, StreamIndex stream, StreamPort::Id id) {
    return cache.add(stream, id, into_);
  }

  /// Appends up to `most` free blocks of a class to `into`, out of the batches.
  void take(ClassIndex size_class, std::size_t most, std::vector<Block>& into);
  /// Adds free blocks of a class to `blocks` of `cache`, at most ThreadCache::refill_count().
  void refill(ThreadCache& cache, CachedBlocks& blocks, ClassIndex size_class,
              const std::vector<Block>& free) {
    if (cache.open_bin(blocks, size_class, into_)) blocks.refill(size_class, free);
  }
  /// Makes space in `blocks` of `cache` for one more block of the class. False: it takes none. Surplus blocks
  /// go to a batch, or to the end of `surplus` if `blocks` are not of the legacy default stream.
  bool make_space(ThreadCache& cache, CachedBlocks& blocks, ClassIndex size_class,
                  std::vector<Block>& surplus);

  void flush();
  /// Flushes the batches, and `cache`, whose owner has the lock, if it is not null.
  void flush(ThreadCache* cache);
  /// Flushes the blocks without a class of all caches. Returns whether there were any.
  bool flush_large();
  /// Flushes what has not been used for `ticks` calls of this.
  void age(int ticks);
  /// `stream` is about to end, or to be forgotten; kNoStream: all but the legacy default stream are. Flushes
  /// its blocks in all caches, which have no place for it any more.
  void dismiss(StreamIndex stream);

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
  template <class Act>
  void for_stopped(const Caches& caches, Act act);

  CacheSink& into_;
  Caches caches_;  ///< by number
  bool stopped_ = false;
  std::uint64_t batch_budget_ = 0;
  std::array<std::vector<Block>, kClasses> batches_;
  std::uint64_t batch_bytes_ = 0;
  int idle_ticks_ = 0;                              ///< of the batches
  std::array<std::uint64_t, kClasses + 1> hits_{};  ///< of threads that have ended
};

}  // namespace gpumem::allocator
