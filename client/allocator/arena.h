#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include "client/allocator/extent_heap.h"
#include "client/allocator/growth_queue.h"
#include "client/allocator/heap.h"
#include "client/allocator/slab_bins.h"
#include "client/allocator/span.h"
#include "client/allocator/streams.h"
#include "client/allocator/thread_caches.h"
#include "gpumem/options.h"
#include "gpumem/statistics.h"

namespace gpumem::allocator {

/// The request of one call: a new block, or more memory for an existing one.
struct Need {
  enum class Kind { kSpan, kAfter, kRoom };
  Kind kind = Kind::kSpan;
  Cut cut = Cut::kSpan;
  std::uint64_t requested = 0;  ///< bytes of the block
  std::uint64_t bytes = 0;      ///< of the span that serves it. kAfter: that it lacks
  Tag tag{};
  StreamIndex stream = kNoStream;
  ThreadCache* cache = nullptr;       ///< the calling thread's
  Span* beside = nullptr;             ///< kAfter: the block to extend. kRoom: as Heap::reserve
  std::chrono::milliseconds wait{0};  ///< for memory that others hold
  std::chrono::nanoseconds taken{0};  ///< of the backing's timeout, by earlier requests of the same call
  bool is_probe = false;              ///< as of Patience
};

/// The memory of one allocator and the streams that may still use it: makes blocks of it, and takes them
/// back. A block comes from the thread caches' batches, else from the slab bins (slots) or the heap (spans),
/// else from extents that are mapped together. Never waits.
/// Threads  under the allocator's lock, except what AddressMap allows.
class Arena : private CacheSink {
 public:
  Arena(Backing& backing, StreamPort& port, AddressMap& map, const std::atomic<std::uint32_t>& seconds);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Blocks.
  /// What a block of `bytes` needs. Reserves its addresses, if it has room.
  /// Errors  kResourceExhausted: there are not so many addresses.
  Result<Need> need_for(std::uint64_t bytes, const Placement& placement);
  /// A block from what is free for the stream already. Zero: more is needed.
  Address take_at_once(const Need& need);
  /// Finds or makes a span for `need`. Null: more memory is needed. Error: memory would not help. The span is
  /// in use, but not handed out yet.
  Result<Span*, GrowError> find_span(const Need& need);
  /// Makes `span`, which was found for `need`, the block, or the slab that it lies in.
  Address finish(Span& span, const Need& need);
  /// How the span that `need` lacks can be made, and how much the backing must lend before.
  ExtentHeap::Plan plan_for(const Need& need);

  struct Found {
    Span* span = nullptr;
    Block block;
    BlockWord word;
    Bytes bytes;  ///< as requested
  };
  /// Errors  kInvalidArgument, as Allocator::deallocate.
  Result<Found> find(Address address, Bytes bytes) const;
  /// Frees the block, in the order of `stream`: into `cache`, if it is not null and takes it.
  /// Errors  kInvalidArgument: another thread has freed it.
  Result<void> free(const Found& found, StreamIndex stream, ThreadCache* cache);
  Result<void> record(const Found& found, StreamIndex stream);
  /// As Streams::forget. No thread's cache has its blocks afterwards.
  Result<void> release_stream(StreamHandle stream);
  /// Sets the marks of all streams that are marked late. No thread's cache has their blocks afterwards.
  void mark_streams();
  /// The block `span`, which is as long as that takes, has `to` bytes from now on. If it had more, `stream`
  /// frees the end, and its room.
  void resize(Span& span, std::uint64_t to, StreamIndex stream);

  // Work that the device has finished.
  void poll();
  void settle(StreamIndex stream, std::uint64_t epoch);

  /// Free bytes, which may be enough for a waiter.
  std::uint64_t free_bytes() const { return heap_.free_bytes() + extents_.spare().count; }
  void add_extents(std::vector<Extent> lent);
  std::uint64_t blocks_in_use() const;

  // Figures.
  struct Counters {
    std::array<std::uint64_t, kClasses + 1> slow{};  ///< allocations not served by a cache, by class
    std::uint64_t peak_used = 0;
    Bytes peak_committed;
    std::uint64_t growths = 0;
    std::uint64_t refused = 0;
    std::uint64_t given_back = 0;
  };
  AllocatorStatistics statistics() const;
  void reset_peaks();
  /// Blocks in use, in address order. Each has its tag's number as its tag.
  std::vector<BlockInfo> snapshot(const std::vector<std::string>& tags) const;

  Heap& heap() { return heap_; }
  ExtentHeap& extents() { return extents_; }
  const ExtentHeap& extents() const { return extents_; }
  Streams& streams() { return streams_; }
  ThreadCaches& caches() { return caches_; }
  const ThreadCaches& caches() const { return caches_; }
  GrowthQueue& queue() { return queue_; }
  Counters& counters() { return counters_; }

 private:
  /// The blocks of the thread's cache that may serve `need`: `own` below. Null: there are none.
  CachedBlocks* cached_for(const Need& need);
  Address take_cached(const Need& need, CachedBlocks* own);
  /// A block of a class from the batches or the slab bins, with more for the thread's cache.
  Address take_batch(const Need& need, CachedBlocks* own);
  Address hand_out(Span& span, const Need& need, const CachedBlocks* own);
  void mark_used(Slot& slot, const Need& need, const CachedBlocks* own);
  void write_used(Slot& slot, const Need& need, const CachedBlocks* own);

  /// Frees a block into the cache of the calling thread. False: it takes none, and nothing has changed.
  bool cache(const Found& found, StreamIndex stream, ThreadCache& cache);
  /// Sets a mark of `blocks` behind all work that the stream has by now.
  bool mark_cached(CachedBlocks& blocks);
  // CacheSink:
  void hand_over(StreamIndex stream, StreamPort::Mark mark) override { streams_.hand_over(stream, mark); }
  void free_cached(StreamIndex stream, const Block& block) override;
  void dismiss(StreamIndex stream, const std::array<StreamPort::Mark, 2>& marks) override;

  Span* take_for(const Need& need);
  Span* take_from_other_streams(const Need& need);

  /// `epoch`  the stream's, when the block was freed.
  void free_block(Span& span, const Block& block, StreamIndex stream, std::uint64_t epoch);
  void free_span(Span& span, StreamIndex stream, std::uint64_t epoch);
  void retire_idle_streams();

  AddressMap& map_;
  const std::atomic<std::uint32_t>& seconds_;
  const Backing::Properties properties_;
  const std::uint64_t unit_;
  Heap heap_;
  ExtentHeap extents_;
  Streams streams_;
  SlabBins slab_bins_;
  RecordedStreams recorded_{streams_};
  ThreadCaches caches_;
  GrowthQueue queue_;
  std::vector<Block> batch_;  ///< empty between calls
  Counters counters_;
};

}  // namespace gpumem::allocator
