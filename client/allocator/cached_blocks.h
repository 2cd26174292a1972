#pragma once
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "client/allocator/backing.h"
#include "client/allocator/span.h"

namespace gpumem::allocator {

/// Allocator::kUnknownSize.
inline constexpr Bytes kUnknownSize{std::numeric_limits<std::uint64_t>::max()};

/// The way of blocks out of the caches. Calls no driver.
class CacheSink {
 public:
  /// `mark` is behind all work that may use the blocks that leave a cache of `stream` now. It comes before
  /// them.
  virtual void hand_over(StreamIndex stream, StreamPort::Mark mark) = 0;
  /// A block that leaves a cache of `stream`, or a batch of the legacy default stream (kNoStream).
  virtual void free_cached(StreamIndex stream, const Block& block) = 0;
  /// A cache of `stream` is there no more. It has no blocks, and its marks are not needed.
  virtual void dismiss(StreamIndex stream, const std::array<StreamPort::Mark, 2>& marks) = 0;

 protected:
  ~CacheSink() = default;
};

/// The free blocks of one stream in one thread's cache, by size class.
/// A free puts a block into the cache of its thread. The block serves that thread and that stream, until its
/// bin is full or the cache is flushed. Then it serves any thread: from a batch, if it is of the legacy
/// default stream, else from its slab or the heap.
/// Work of the stream may still use a cached block. Another stream must wait for a mark behind that work. The
/// legacy default stream does not end, so it is marked when another stream needs the block. Other streams may
/// end after any free. So each free sets the mark at once, and the mark leaves the cache with the blocks. If
/// the ends of streams are announced (StreamPort::announces_ends), these are marked as the legacy one is.
/// The bin of kNoClass has at most one block, of more than kClassMost, and only while the thread allocates
/// blocks of its size one after the other. It serves requests for as many bytes as it had before.
/// Invariant  `newest` of a stream that is not marked late is behind the work of all blocks here, except
///            blocks that the heap gave the cache (refill): these have the heap's marks.
/// Threads    the owner between ThreadCache::enter() and leave(), and who has stopped it, unless said
///            otherwise.
class CachedBlocks {
 public:
  explicit CachedBlocks(CacheNumber number) : number_(number) {}

  /// The blocks are of `stream` from now on. There are none.
  void assign(StreamIndex stream) {
    stream_ = stream;
    cached_ = BlockWord::cached(number_, stream);
    handed_out_ = BlockWord::used(stream, 0, number_);
  }
  /// kNoStream: it is used for none.
  StreamIndex stream() const { return stream_; }

  /// Zero if there is no block, or if the next one was freed twice and is in another cache.
  Address pop(std::uint64_t bytes, std::uint32_t now);
  /// Pops only a block with a class.
  Address pop_classed(std::uint64_t bytes, std::uint32_t now);
  /// Takes a block that is in use and of `bytes`, if its bin has space. `of_any_stream`  whichever stream it
  /// was allocated on.
  bool push(const Span& span, Slot& slot, Address address, std::uint64_t bytes, bool of_any_stream);
  /// Pushes only an untagged block with a class that was handed out from here.
  bool push_own(const Span& span, Slot& slot, Address address, std::uint64_t bytes);
  /// Whether push() takes the block.
  bool can_claim(const Span& span, BlockWord word, std::uint64_t bytes, bool of_any_stream) const;
  /// Whether there is a block for a request of `bytes`.
  bool has_block_for(ClassIndex size_class, std::uint64_t bytes) const {
    return count(size_class) != 0 &&
           (size_class != kNoClass || large_bytes_.load(std::memory_order_relaxed) == bytes);
  }

  // Marks of a stream other than the legacy default stream.
  /// Moves a mark behind all work given to the stream so far. False: the blocks that are here have their mark
  /// still, and no further one may come.
  bool renew(StreamPort& port, StreamHandle stream) {
    if (spare_ == StreamPort::Mark{} || !port.renew(spare_, stream)) return false;
    std::swap(newest_, spare_);
    return true;
  }
  bool has_spare() const { return spare_ != StreamPort::Mark{}; }
  /// `mark` was set just now. There is no spare one.
  void add(StreamPort::Mark mark) { spare_ = std::exchange(newest_, mark); }

  // Under the allocator's lock.
  bool is_open(ClassIndex size_class) const { return bins_[size_class].capacity() != 0; }
  bool is_full(ClassIndex size_class) const { return bins_[size_class].is_full(); }
  /// Has the bin hold up to `capacity` blocks, at most capacity_of().
  void open(ClassIndex size_class, std::size_t capacity);
  /// Most blocks of the class in one cache.
  static std::size_t capacity_of(ClassIndex size_class);
  std::size_t capacity(ClassIndex size_class) const { return bins_[size_class].capacity(); }
  std::size_t count(ClassIndex size_class) const { return bins_[size_class].count(); }
  /// Adds free blocks, for which there is space.
  void refill(ClassIndex size_class, const std::vector<Block>& blocks);
  /// Moves the older half of the blocks of the class to the end of `into`.
  void take_older(ClassIndex size_class, std::vector<Block>& into);
  /// The thread allocates `bytes`, more than kClassMost. A block without a class and of another size leaves.
  void expect_large(std::uint64_t bytes, CacheSink& into);
  /// Removes the block without a class, with the mark.
  void flush_large(CacheSink& into);
  /// Removes all blocks, with their mark, and closes the bins. Returns the bytes that these could hold.
  std::uint64_t flush(CacheSink& into);
  /// Flushes, and gives the marks and the stream up.
  std::uint64_t dismiss(CacheSink& into);

  // Under the allocator's lock: any thread.
  std::uint64_t bytes() const;
  /// Allocations served from here, by class.
  std::uint64_t hits(ClassIndex size_class) const {
    return bins_[size_class].hits.load(std::memory_order_relaxed);
  }
  /// How many calls of this in a row have found no use of the blocks.
  int age();
  int idle_ticks() const { return idle_ticks_; }

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
    bool is_full() const { return top.load(std::memory_order_relaxed) == ceiling; }
    void add(const Block& block) {
      Block* const at = top.load(std::memory_order_relaxed);
      *at = block;
      top.store(at + 1, std::memory_order_relaxed);
    }
  };
  bool claim(const Span& span, Slot& slot, std::uint64_t bytes, bool of_any_stream);
  /// The newest block of the bin, which has `word` from now on.
  Address take_newest(Bin& bin, BlockWord word, std::uint32_t now);
  void hand_over_mark(CacheSink& into);
  /// Removes the oldest `count` blocks. Calls `into` with each.
  template <class Into>
  void remove_oldest(Bin& bin, std::size_t count, Into&& into);

  BlockWord cached_;      ///< the word of a block that is here
  BlockWord handed_out_;  ///< the word of a block that was handed out from here, except for the bytes
  std::array<Bin, kClasses + 1> bins_{};
  std::atomic<std::uint64_t> large_bytes_{0};  ///< requested, of the block without a class
  std::uint64_t last_large_ = 0;               ///< bytes of the latest allocation without a class
  std::uint64_t wanted_large_ = 0;             ///< of the latest two, if they are equal; else zero
  StreamPort::Mark newest_{}, spare_{};
  const CacheNumber number_;
  StreamIndex stream_ = kNoStream;
  std::uint64_t uses_ = 0;  ///< a sum that every use changes, as of the last age()
  int idle_ticks_ = 0;
};

// ---- The fast path ----

// This and push_own() call nothing, so their callers save no registers.
inline Address CachedBlocks::pop_classed(std::uint64_t bytes, std::uint32_t now) {
  const ClassIndex size_class = class_of(bytes);
  if (size_class == kNoClass) [[unlikely]]
    return 0;
  return take_newest(bins_[size_class], handed_out_.with_bytes(bytes), now);
}

inline Address CachedBlocks::take_newest(Bin& bin, BlockWord word, std::uint32_t now) {
  Block* top = bin.top.load(std::memory_order_relaxed);
  if (top == bin.floor.get()) return 0;
  const Block block = *--top;
  bin.top.store(top, std::memory_order_relaxed);
  // If two threads freed one block at the same time, both caches may list it. The cache whose word it has
  // owns it.
  if (block.slot->get() != cached_) [[unlikely]]
    return 0;
  block.slot->set(word);
  block.slot->born.store(now, std::memory_order_relaxed);
  bin.hits.store(bin.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return block.address;
}

// The whole word identifies an untagged block that was handed out from here.
inline bool CachedBlocks::push_own(const Span& span, Slot& slot, Address address, std::uint64_t bytes) {
  Bin& bin = bins_[span.size_class];
  if (bin.is_full() || bytes - 1 >= BlockWord::kBytesMost) [[unlikely]]
    return false;
  if (slot.get() != handed_out_.with_bytes(bytes)) [[unlikely]]
    return false;
  slot.set(cached_);
  bin.add({address, &slot});
  return true;
}

}  // namespace gpumem::allocator
