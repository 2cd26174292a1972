#pragma once
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/allocator/cached_blocks.h"
#include "gpumem/options.h"

namespace gpumem::allocator {

class Engine;

/// Free blocks of one thread, by stream and size class, so that most calls take no lock.
/// Between enter() and leave() only the owner uses it. Another thread that needs its blocks takes the
/// allocator's lock and stops the cache. The owner's next enter() then fails, and the owner takes that lock.
/// The owner pays two plain stores and a load. The other thread has the kernel run a barrier in every running
/// thread of the process.
/// A block of the legacy default stream costs no driver call. On another stream an allocation costs one: the
/// query of the stream's id. A free costs three: the id, the record of an event, and whether a capture took
/// it. If ends of streams are announced, it costs the id alone. Ids are never reused, so a known id names a
/// stream, and a context, that still exist.
/// Threads  as stated for each group of functions.
class ThreadCache {
 public:
  struct EngineRef {
    std::mutex mutex;
    Engine* engine = nullptr;  ///< null: closed
  };

  /// `port`  exists until the cache is stopped for good.
  ThreadCache(std::shared_ptr<EngineRef> engine, CacheNumber number, StreamPort& port);

  // The owner, without a lock. The legacy default stream, and blocks with a class. Call nothing.
  /// The address of a block, or zero.
  Address take(std::uint64_t bytes, std::uint32_t now);
  /// Caches the untagged block at `address`, which is `slot` of `span`, if it is in use, was handed out from
  /// here, and its requested size is `bytes`. False if not; then nothing has changed.
  bool put(const Span& span, Slot& slot, Address address, std::uint64_t bytes);
  // Likewise, any block that was allocated on the stream that frees it. Not the per-thread default stream.
  Address take_of(StreamHandle stream, std::uint64_t bytes, std::uint32_t now);
  bool put_of(StreamHandle stream, const Span& span, Slot& slot, Address address, std::uint64_t bytes);
  /// The thread ends. Calls no driver, whose state of this thread may be gone.
  void retire();

  // Under the allocator's lock: the owner, or a thread that has stopped the cache.
  /// How many bytes the cache may hold, of all streams together.
  void set_budget(std::uint64_t budget) { budget_ = budget; }
  CachedBlocks& legacy() { return legacy_; }
  /// The blocks of a stream. Null if there is no place for them.
  CachedBlocks* find(StreamIndex stream);
  /// Makes place for the blocks of `stream`, which has none here. `id`  not zero. Null: all places are in
  /// use.
  CachedBlocks* add(StreamIndex stream, StreamPort::Id id, CacheSink& into);
  /// How many blocks CachedBlocks::refill() would accept for a class of which there is none.
  std::size_t refill_count(const CachedBlocks& blocks, ClassIndex size_class) const;
  /// Whether `blocks`, of this cache, take some of the class. Assigns a part of the budget to it, for which
  /// others may be flushed.
  bool open_bin(CachedBlocks& blocks, ClassIndex size_class, CacheSink& into);
  /// As take(), for any block of `blocks`.
  static Address take_locked(CachedBlocks& blocks, std::uint64_t bytes, std::uint32_t now);
  /// Removes all blocks, and takes the budget back from the classes.
  void flush(CacheSink& into);
  /// Removes the blocks without a class.
  void flush_large(CacheSink& into);
  /// Likewise those that age() has found unused so often.
  void flush_aged(int ticks, CacheSink& into);
  /// Flushes and gives up the places of `stream`, or of all streams if that is kNoStream.
  void dismiss(StreamIndex stream, CacheSink& into);

  // Under the allocator's lock: another thread.
  /// Has the kernel register this process for barriers. Of a process with one thread it does so at once. Of
  /// any other it does so when all processors have switched tasks, milliseconds later: then a thread of the
  /// library waits for it, and there are no caches meanwhile.
  static void prepare();
  /// Whether the kernel runs barriers in other threads. Without this there are no caches.
  static bool can_be_stopped();
  /// After this, until resume(), no owner is between enter() and leave() of one of `caches`.
  static void stop(std::span<const std::shared_ptr<ThreadCache>> caches);
  /// Not if the kernel has refused a barrier: such a cache stays stopped.
  void resume();

  // Under the allocator's lock: any thread.
  bool belongs_to(const std::shared_ptr<EngineRef>& engine) const { return engine_ref_ == engine; }
  CacheNumber number() const { return number_; }
  std::uint64_t bytes() const;
  /// Allocations served from this cache, by class.
  std::uint64_t hits(ClassIndex size_class) const;
  /// Whether there are blocks without a class.
  bool has_large() const;
  /// Whether there is a place for `stream`; for any, if that is kNoStream.
  bool has(StreamIndex stream) const;
  /// Whether blocks of a stream were not used for so many calls of this.
  bool age(int ticks);

 private:
  /// Streams that one thread has blocks of. Few threads use more; further streams have no place.
  static constexpr std::size_t kMostStreams = 32;

  struct Leaving;
  bool enter();
  void leave() { busy_.store(false, std::memory_order_release); }
  /// The blocks of the stream that `stream` names now, by a call of the driver.
  CachedBlocks* find_named(StreamHandle stream);
  /// Calls `visit` with the blocks of each stream.
  template <class Self, class Visit>
  static void for_each(Self& self, Visit visit);
  void release(std::uint64_t could_hold) { granted_ -= could_hold; }
  std::size_t capacity_for(ClassIndex size_class) const;

  std::atomic<bool> busy_{false};
  std::atomic<bool> stopped_{false};
  CachedBlocks legacy_;
  std::size_t places_ = 0;                          ///< that were ever used; written by the owner only
  std::array<StreamPort::Id, kMostStreams> ids_{};  ///< of the streams below; zero: free
  std::array<std::unique_ptr<CachedBlocks>, kMostStreams> of_streams_;
  StreamPort& port_;
  std::uint64_t budget_ = 0;   ///< bytes that the cache may hold
  std::uint64_t granted_ = 0;  ///< of the budget, assigned to bins
  int misses_ = 0;             ///< blocks without a bin since the last flush()
  const CacheNumber number_;
  const std::shared_ptr<EngineRef> engine_ref_;
};

// ---- The fast path ----

#if defined(__has_feature)
#define GPUMEM_HAS_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define GPUMEM_HAS_TSAN 1
#else
#define GPUMEM_HAS_TSAN 0
#endif
/// Whether the owner leaves the barrier to the kernel, whose part the thread sanitizer does not know.
inline constexpr bool kPlainFences = !GPUMEM_HAS_TSAN;

inline bool ThreadCache::enter() {
  busy_.store(true, kPlainFences ? std::memory_order_relaxed : std::memory_order_seq_cst);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (!stopped_.load(kPlainFences ? std::memory_order_acquire : std::memory_order_seq_cst)) [[likely]]
    return true;
  leave();
  return false;
}

inline Address ThreadCache::take(std::uint64_t bytes, std::uint32_t now) {
  if (!enter()) [[unlikely]]
    return 0;
  const Address address = legacy_.pop_classed(bytes, now);
  leave();
  return address;
}

inline bool ThreadCache::put(const Span& span, Slot& slot, Address address, std::uint64_t bytes) {
  if (!enter()) [[unlikely]]
    return false;
  const bool kept = legacy_.push_own(span, slot, address, bytes);
  leave();
  return kept;
}

}  // namespace gpumem::allocator
