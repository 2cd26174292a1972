#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/allocator/slab_bins.h"
#include "gpumem/options.h"

namespace gpumem::allocator {

class Engine;

/// Allocator::kUnknownSize.
inline constexpr Bytes kUnknownSize{std::numeric_limits<std::uint64_t>::max()};

/// Free blocks of one thread, by stream and size class, so that most calls take no lock.
/// Between enter() and leave() only the owner uses it. Another thread that needs its blocks takes the
/// allocator's lock and stops the cache. The owner's next enter() then fails, and the owner takes that lock.
/// The owner pays two plain stores and a load. The other thread has the kernel run a barrier in every running
/// thread of the process.
/// Threads  as stated for each group of functions.
class ThreadCache {
 public:
  struct EngineRef {
    std::mutex mutex;
    Engine* engine = nullptr;  ///< null: closed
  };

  ThreadCache(std::shared_ptr<EngineRef> engine, CacheNumber number);

  // The owner, without a lock.
  /// The address of a block, or zero. The fast path: only the stream that was used last.
  Address take(std::uint64_t bytes, StreamHandle stream, std::uint32_t now);
  /// Caches the block at `address`, which is `slot` of `span`, if it is in use and its requested size is
  /// `bytes`. False if not; then nothing has changed. The fast path: only the stream that was used last, and
  /// blocks that this cache handed out.
  bool put(const Span& span, Slot& slot, Address address, std::uint64_t bytes, StreamHandle stream);
  /// As take() and put(), for any stream that the cache knows and any block.
  Address take_any(std::uint64_t bytes, StreamHandle stream, std::uint32_t now);
  bool put_any(const Span& span, Slot& slot, Address address, std::uint64_t bytes, StreamHandle stream);
  /// The thread ends.
  void retire();

  // Under the allocator's lock: the owner, or a thread that has stopped the cache.
  using FlushTarget = std::function<void(const Block&, StreamIndex)>;
  /// Makes `stream`, which has `index` in the table, the current stream.
  void use(StreamHandle stream, StreamIndex index);
  bool is_of(StreamHandle stream) const { return current_->handle == stream && current_->index != kNoStream; }
  StreamIndex stream() const { return current_->index; }
  /// Sets how many bytes the cache may hold.
  void set_budget(std::uint64_t bytes) { budget_ = bytes; }
  /// How many blocks refill() would accept for a class of which the cache has none.
  std::size_t refill_count(ClassIndex size_class) const;
  /// Adds free blocks of the current stream, at most refill_count().
  void refill(ClassIndex size_class, const Block* blocks, std::size_t count);
  /// Makes space for one more block of the class on the current stream. False if the budget has none for it.
  bool ensure_capacity(ClassIndex size_class, const FlushTarget& into);
  /// As take() and put(), on the current stream.
  Address take_locked(std::uint64_t bytes, std::uint32_t now);
  bool put_locked(const Span& span, Slot& slot, Address address, std::uint64_t bytes) {
    return push<true>(span, slot, address, bytes);
  }
  /// Removes all blocks, of one stream or (kNoStream) of all. A thread other than the owner leaves the blocks
  /// of the owner's per-thread default stream, because only the owner can set marks on it.
  void flush(const FlushTarget& into, bool by_owner, StreamIndex only = kNoStream);
  std::vector<StreamIndex> per_thread_streams() const;
  /// Removes the stream, which has no blocks here.
  void drop_stream(StreamIndex index);

  // Under the allocator's lock: another thread.
  /// Whether the kernel can run barriers in other threads. Without this there are no caches.
  static bool can_be_stopped();
  /// After this, until resume(), no owner is between enter() and leave() of one of `caches`.
  static void stop(std::span<ThreadCache* const> caches);
  void resume() { stopped_.store(false, std::memory_order_seq_cst); }

  // Under the allocator's lock: any thread.
  bool belongs_to(const std::shared_ptr<EngineRef>& engine) const { return engine_ref_ == engine; }
  CacheNumber number() const { return number_; }
  std::uint64_t bytes() const;
  /// Allocations served from this cache, by class.
  std::uint64_t hits(ClassIndex size_class) const;
  /// Changes whenever the cache is used.
  std::uint64_t uses() const;

 private:
  /// A stack of blocks, from `floor` to `top`.
  struct Bin {
    std::atomic<Block*> top{nullptr};
    Block* floor = nullptr;
    Block* ceiling = nullptr;
    std::atomic<std::uint64_t> hits{0};

    std::size_t count() const {
      return static_cast<std::size_t>(top.load(std::memory_order_relaxed) - floor);
    }
    std::size_t capacity() const { return static_cast<std::size_t>(ceiling - floor); }
  };
  struct StreamBins {
    StreamHandle handle = nullptr;
    StreamIndex index = kNoStream;
    BlockWord handed_out;                  ///< the word of its blocks, except for the bytes
    std::array<Bin, kClasses + 1> bins{};  ///< the bin of kNoClass has no capacity
    std::array<std::unique_ptr<Block[]>, kClasses> blocks;
  };

  bool enter();
  void leave() { busy_.store(false, std::memory_order_release); }
  bool change_to(StreamHandle stream);
  /// Zero if there is no block, or if the next one was freed twice and is in another cache.
  Address pop(std::uint64_t bytes, std::uint32_t now);
  /// `wherever`  accepts any block; false: only what this cache handed out on the current stream.
  template <bool wherever>
  bool push(const Span& span, Slot& slot, Address address, std::uint64_t bytes);
  bool claim(Slot& slot, std::uint64_t bytes);
  std::size_t capacity_for(ClassIndex size_class) const;
  void rebalance(const FlushTarget& into);
  void flush_bin(StreamBins& bins, ClassIndex size_class, std::size_t count, const FlushTarget& into);

  std::atomic<bool> busy_{false};
  std::atomic<bool> stopped_{false};
  const CacheNumber number_;
  const BlockWord cached_;  ///< the word of a block in this cache
  StreamBins* current_;
  std::uint64_t budget_ = 0;   ///< bytes that the cache may hold
  std::uint64_t granted_ = 0;  ///< of the budget, assigned to bins
  int misses_ = 0;             ///< blocks without a bin since the last rebalance()
  std::vector<std::unique_ptr<StreamBins>> streams_;
  std::array<std::uint64_t, kClasses> dropped_hits_{};  ///< of streams that were dropped
  StreamBins none_;
  const std::shared_ptr<EngineRef> engine_ref_;
};

// ---- The fast path ----

#if defined(__SANITIZE_THREAD__)
#define GPUMEM_PLAIN_FENCES 0  // the sanitizer does not know the kernel's barrier
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GPUMEM_PLAIN_FENCES 0
#endif
#endif
#ifndef GPUMEM_PLAIN_FENCES
#define GPUMEM_PLAIN_FENCES 1
#endif

inline bool ThreadCache::enter() {
#if GPUMEM_PLAIN_FENCES
  busy_.store(true, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (!stopped_.load(std::memory_order_acquire)) [[likely]]
    return true;
#else
  busy_.store(true, std::memory_order_seq_cst);
  if (!stopped_.load(std::memory_order_seq_cst)) return true;
#endif
  leave();
  return false;
}

inline Address ThreadCache::take(std::uint64_t bytes, StreamHandle stream, std::uint32_t now) {
  if (!enter()) [[unlikely]]
    return 0;
  const Address address = current_->handle == stream ? pop(bytes, now) : 0;
  leave();
  return address;
}

inline bool ThreadCache::put(const Span& span, Slot& slot, Address address, std::uint64_t bytes,
                             StreamHandle stream) {
  if (!enter()) [[unlikely]]
    return false;
  const bool kept = current_->handle == stream && push<false>(span, slot, address, bytes);
  leave();
  return kept;
}

inline Address ThreadCache::pop(std::uint64_t bytes, std::uint32_t now) {
  Bin& bin = current_->bins[class_of(bytes)];
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.floor) return 0;
  const Block block = *--top;
  bin.top.store(top, std::memory_order_relaxed);
  // If two threads freed one block at the same time, both caches may list it. The one whose number is in the
  // word has it.
  if (block.slot->get() != cached_) [[unlikely]]
    return 0;
  block.slot->set(current_->handed_out.with_bytes(bytes));
  block.slot->born.store(now, std::memory_order_relaxed);
  bin.hits.store(bin.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return block.address;
}

// The whole word identifies an untagged block that this cache handed out on this stream.
template <bool wherever>
inline bool ThreadCache::push(const Span& span, Slot& slot, Address address, std::uint64_t bytes) {
  Bin& bin = current_->bins[span.size_class];
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.ceiling) [[unlikely]]
    return false;
  if (bytes - 1 < BlockWord::kBytesMost && slot.get() == current_->handed_out.with_bytes(bytes)) [[likely]] {
    slot.set(cached_);
  } else if (!wherever || !claim(slot, bytes)) {
    return false;
  }
  *top = {address, &slot};
  bin.top.store(top + 1, std::memory_order_relaxed);
  return true;
}

}  // namespace gpumem::allocator
