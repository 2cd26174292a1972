#pragma once
#include <array>
#include <memory>
#include <vector>

#include "client/allocator/thread_cache.h"
#include "client/allocator/thread_table.h"

namespace gpumem::allocator {

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
