#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/allocator/span.h"
#include "gpumem/options.h"

namespace gpumem::allocator {

class Engine;

/// Allocator::kUnknownSize.
inline constexpr Bytes kUnknownSize{std::numeric_limits<std::uint64_t>::max()};

/// Free blocks of one thread on the legacy default stream, by size class, so that most calls take no lock. A
/// block that is freed on another stream needs a mark at once, which takes the lock.
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
  /// The address of a block, or zero.
  Address take(std::uint64_t bytes, std::uint32_t now);
  /// Caches the block at `address`, which is `slot` of `span`, if it was allocated on the legacy default
  /// stream, is in use, and its requested size is `bytes`. False if not; then nothing has changed.
  bool put(const Span& span, Slot& slot, Address address, std::uint64_t bytes);
  /// The thread ends. Calls no driver, whose state of this thread may be gone.
  void retire();

  // Under the allocator's lock: the owner, or a thread that has stopped the cache.
  using FlushTarget = std::function<void(const Block&)>;
  /// Sets the number of the legacy default stream, and how many bytes the cache may hold.
  void use(StreamIndex legacy, std::uint64_t budget);
  /// How many blocks refill() would accept for a class of which the cache has none.
  std::size_t refill_count(ClassIndex size_class) const;
  /// Adds free blocks, at most refill_count().
  void refill(ClassIndex size_class, const std::vector<Block>& blocks);
  /// Whether the cache takes blocks of the class. Assigns a part of the budget to it, for which other classes
  /// may be flushed.
  bool open_bin(ClassIndex size_class, const FlushTarget& into);
  bool is_full(ClassIndex size_class) const {
    return bins_[size_class].count() == bins_[size_class].capacity();
  }
  /// The number of no cache, in the words of blocks between caches.
  static constexpr CacheNumber kInBatch = 0;
  /// Moves the older half of the blocks of the class to the end of `into`.
  void take_older(ClassIndex size_class, std::vector<Block>& into);
  /// As take() and put(), for any block.
  Address take_locked(std::uint64_t bytes, std::uint32_t now);
  bool put_locked(const Span& span, Slot& slot, Address address, std::uint64_t bytes) {
    return push(span, slot, address, bytes, true);
  }
  /// Removes all blocks, and takes the budget back from the classes.
  void flush(const FlushTarget& into);

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
  CacheNumber number() const { return cached_.cache(); }
  std::uint64_t bytes() const;
  /// Allocations served from this cache, by class.
  std::uint64_t hits(ClassIndex size_class) const {
    return bins_[size_class].hits.load(std::memory_order_relaxed);
  }
  /// How many calls of this in a row have found the cache unused.
  int age();

 private:
  /// A stack of blocks, from `floor` to `top`.
  struct Bin {
    std::atomic<Block*> top{nullptr};
    std::unique_ptr<Block[]> floor;  ///< made when the bin is first opened
    Block* ceiling = nullptr;
    std::atomic<std::uint64_t> hits{0};

    std::size_t count() const {
      return static_cast<std::size_t>(top.load(std::memory_order_relaxed) - floor.get());
    }
    std::size_t capacity() const { return static_cast<std::size_t>(ceiling - floor.get()); }
  };
  bool enter();
  void leave() { busy_.store(false, std::memory_order_release); }
  /// Zero if there is no block, or if the next one was freed twice and is in another cache.
  Address pop(std::uint64_t bytes, std::uint32_t now);
  bool push(const Span& span, Slot& slot, Address address, std::uint64_t bytes, bool of_any_stream);
  bool claim(Slot& slot, std::uint64_t bytes, bool of_any_stream);
  std::size_t capacity_for(ClassIndex size_class) const;
  /// Removes the oldest `count` blocks. Calls `into` with each.
  template <class Into>
  void remove_oldest(Bin& bin, std::size_t count, Into&& into);

  std::atomic<bool> busy_{false};
  std::atomic<bool> stopped_{false};
  const BlockWord cached_;     ///< the word of a block in this cache
  BlockWord handed_out_;       ///< the word of a block that it handed out, except for the bytes
  std::uint64_t budget_ = 0;   ///< bytes that the cache may hold
  std::uint64_t granted_ = 0;  ///< of the budget, assigned to bins
  int misses_ = 0;             ///< blocks without a bin since the last flush()
  std::uint64_t uses_ = 0;     ///< a sum that every use changes, as of the last age()
  int idle_ticks_ = 0;
  std::array<Bin, kClasses + 1> bins_{};  ///< the bin of kNoClass has no capacity
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
  const Address address = pop(bytes, now);
  leave();
  return address;
}

inline bool ThreadCache::put(const Span& span, Slot& slot, Address address, std::uint64_t bytes) {
  if (!enter()) [[unlikely]]
    return false;
  const bool kept = push(span, slot, address, bytes, false);
  leave();
  return kept;
}

inline Address ThreadCache::pop(std::uint64_t bytes, std::uint32_t now) {
  Bin& bin = bins_[class_of(bytes)];
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.floor.get()) return 0;
  const Block block = *--top;
  bin.top.store(top, std::memory_order_relaxed);
  // If two threads freed one block at the same time, both caches may list it. The one whose number is in the
  // word has it.
  if (block.slot->get() != cached_) [[unlikely]]
    return 0;
  block.slot->set(handed_out_.with_bytes(bytes));
  block.slot->born.store(now, std::memory_order_relaxed);
  bin.hits.store(bin.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return block.address;
}

// The whole word identifies an untagged block that this cache handed out.
inline bool ThreadCache::push(const Span& span, Slot& slot, Address address, std::uint64_t bytes,
                              bool of_any_stream) {
  Bin& bin = bins_[span.size_class];
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.ceiling) [[unlikely]]
    return false;
  if (bytes - 1 < BlockWord::kBytesMost && slot.get() == handed_out_.with_bytes(bytes)) [[likely]] {
    slot.set(cached_);
  } else if (!claim(slot, bytes, of_any_stream)) {
    return false;
  }
  *top = {address, &slot};
  bin.top.store(top + 1, std::memory_order_relaxed);
  return true;
}

}  // namespace gpumem::allocator
