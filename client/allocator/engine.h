#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "client/allocator/address_map.h"
#include "client/allocator/backing.h"
#include "client/allocator/extent_heap.h"
#include "client/allocator/heap.h"
#include "client/allocator/idle_tracker.h"
#include "client/allocator/slab_bins.h"
#include "client/allocator/stream_port.h"
#include "client/allocator/streams.h"
#include "client/allocator/thread_cache.h"
#include "client/allocator/thread_table.h"
#include "client/background_task.h"
#include "gpumem/options.h"
#include "gpumem/statistics.h"

namespace gpumem::allocator {

struct EngineOptions {
  std::chrono::milliseconds wait{0};
  std::chrono::milliseconds idle{2'000};
  bool background_task = true;  ///< returns idle memory; tests may do without
};

/// The implementation of Allocator, over any backing. A block comes from the calling thread's cache, else
/// from the slab bins (slab slots) or the heap (spans), else from wholly free extents that are remapped
/// together, else from the backing.
/// Threads  any. One lock guards everything but the caches. It is never held while waiting for the broker or
///          the device.
class Engine {
 public:
  Engine(std::unique_ptr<Backing> backing, std::unique_ptr<StreamPort> streams, const EngineOptions& options);
  /// As Allocator's. Not run in a forked child.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The fast path. Zero: call allocate().
  Address try_allocate(Bytes bytes, StreamHandle stream) {
    ThreadCache* cache = ThreadTable::find(number_.get());
    if (cache == nullptr || bytes.count - 1 >= kClassMost || !Streams::is_legacy(stream)) return 0;
    return cache->take(bytes.count, seconds_.load(std::memory_order_relaxed));
  }
  /// The fast path. False: call deallocate().
  bool try_deallocate(Address address, Bytes bytes, StreamHandle stream) {
    ThreadCache* cache = ThreadTable::find(number_.get());
    if (cache == nullptr || !Streams::is_legacy(stream)) return false;
    Span* span = map_.find(address);
    if (span == nullptr) [[unlikely]]
      return false;
    Slot* slot = slot_of(*span, address);
    return slot != nullptr && cache->put(*span, *slot, address, bytes.count);
  }

  // As Allocator's.
  Result<Address, GrowError> allocate(Bytes bytes, StreamHandle stream, const Placement& placement = {}) {
    return allocate(bytes, stream, placement, options_.wait);
  }
  /// The same, waiting for as long as `wait` in place of what the options say.
  Result<Address, GrowError> allocate(Bytes bytes, StreamHandle stream, const Placement& placement,
                                      std::chrono::milliseconds wait);
  Result<void> deallocate(Address address, Bytes bytes, StreamHandle stream);
  Result<void, GrowError> extend(Address address, Bytes bytes, Bytes to, StreamHandle stream);
  Result<void> record_stream(Address address, StreamHandle stream);
  Result<void> release_stream(StreamHandle stream);
  Result<Bytes> trim(Bytes bytes);
  /// The same of what no work uses any more: does not wait for streams.
  Result<Bytes> trim_unused(Bytes bytes);
  Result<Tag> tag(std::string_view name);
  /// The names that have a tag, by number, from 1 on.
  std::vector<std::string> tags() const;
  Result<AllocatorStatistics> statistics() const;
  Result<void> reset_peaks();
  Result<std::vector<BlockInfo>> snapshot() const;
  Result<Backing::HandleBytes> export_handle(Address address, Bytes offset, Bytes bytes,
                                             const ExportOptions& options);
  /// From now on the device with `ordinal`, a peer, may use the blocks, too.   Errors  the driver's.
  Result<void> allow(int ordinal);
  Result<void> close();
  /// As close, even while blocks are in use.
  Result<void> end();

  /// Committed memory in wholly free extents and in caches, for answering pressure. Never waits.
  Bytes surplus() const;
  /// Does what the background task would do at `now`; for tests, which have none.
  void background_tick(std::chrono::steady_clock::time_point now);
  /// Removes `cache`, whose owner, the calling thread, ends. Calls no driver.
  void retire(ThreadCache& cache);

  /// An object that ends when this is closed or destroyed, before the backing.
  struct Attachment {
    virtual ~Attachment() = default;
  };
  void attach(std::unique_ptr<Attachment> attachment) { attachment_ = std::move(attachment); }

  /// Whether `address` is one of the addresses that blocks of this engine can have.
  bool has_address(Address address) const { return address - base_ < addresses_.count; }

  Bytes limit() const { return limit_; }
  Bytes granularity() const { return {unit_}; }
  const std::string& device() const { return device_; }
  int ordinal() const { return ordinal_; }

 private:
  struct Request {
    std::uint64_t bytes = 0;  ///< as requested, before rounding
    StreamHandle stream = nullptr;
    Placement placement;
    std::chrono::milliseconds wait{0};
    ThreadCache* cache = nullptr;  ///< the calling thread's, on the legacy default stream only
  };
  using Clock = std::chrono::steady_clock;

  static Slot* slot_of(const Span& span, Address address) {
    const std::uint64_t offset = address - span.base;
    const std::uint64_t slot = slot_at(offset, span.reciprocal);
    return slot * span.slot_bytes == offset ? &span.slots[slot] : nullptr;
  }

  bool is_usable() const;  ///< as usable(), without a message
  Result<void> usable() const;
  static Error is_closed();
  /// Errors  kFailedPrecondition (closed); as Streams::index_of.
  Result<StreamIndex> stream_of(StreamHandle stream) GPUMEM_REQUIRES(lock_);
  /// The calling thread's cache, made at the first call. Null if it can have none.
  ThreadCache* own_cache();

  // engine.cc: blocks.
  struct Need;
  /// Errors  kInvalidArgument, kResourceExhausted: such a block can never be had.
  Result<void> check(const Request& request) const;
  Result<Address, GrowError> allocate_slowly(const Request& request, ThreadCache* cache);
  /// What `request` needs if nothing is there for it.
  Need need_for(const Request& request, StreamIndex stream) const;
  /// From what is free for the stream already. Zero: more is needed.
  Address take_at_once(const Request& request, const Need& need) GPUMEM_REQUIRES(lock_);
  /// Makes `span`, which was found for `need`, the block, or the slab that it lies in.
  Address finish(Span& span, const Request& request, const Need& need) GPUMEM_REQUIRES(lock_);
  Address take_cached(const Request& request) GPUMEM_REQUIRES(lock_);
  Address take_slot(const Request& request, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  Address hand_out(Span& span, const Request& request, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  void mark_used(Slot& slot, const Request& request, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  bool has_tag(Tag tag) const;
  std::uint64_t cache_budget() const GPUMEM_REQUIRES(lock_);
  void tag_block(Address address, Tag tag) GPUMEM_REQUIRES(lock_);
  struct Found {
    Span* span = nullptr;
    Slot* slot = nullptr;
    BlockWord word;
    Bytes bytes;  ///< as requested
  };
  /// Errors  as deallocate's.
  Result<Found> find(Address address, Bytes bytes) const GPUMEM_REQUIRES(lock_);
  /// The stream in whose order a block is freed that the caller frees on `stream`. Errors  as stream_of.
  Result<StreamIndex> order_of_free(StreamHandle stream, StreamIndex allocated_on) GPUMEM_REQUIRES(lock_);
  /// `epoch`  the stream's, when the block was freed.
  void free_block(Span& span, const Block& block, StreamIndex stream, std::uint64_t epoch)
      GPUMEM_REQUIRES(lock_);
  void free_span(Span& span, StreamIndex stream, std::uint64_t epoch) GPUMEM_REQUIRES(lock_);
  /// Frees the blocks that are flushed from a thread's cache.
  ThreadCache::FlushTarget flush_target();
  void free_flushed(const Block& block) GPUMEM_THREAD(no_thread_safety_analysis);

  // engine_recorded.cc: blocks that further streams use.
  /// A freed block whose recorded streams may still use it.
  struct HeldBlock {
    struct Use {
      StreamIndex stream = kNoStream;
      std::uint64_t epoch = 0;
    };
    Block block;
    Use freed;               ///< the stream it was freed on
    std::vector<Use> users;  ///< the recorded streams
  };
  /// Frees `block` on `stream`, for which other streams are recorded: at once, if it is used on no other.
  void free_recorded(const Block& block, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  bool is_used_still(const HeldBlock& held) const GPUMEM_REQUIRES(lock_);
  /// Frees the blocks that their recorded streams do not use any more.
  void free_held() GPUMEM_REQUIRES(lock_);
  /// The streams that must go on before held blocks can be free.
  std::vector<StreamIndex> awaited_streams() const GPUMEM_REQUIRES(lock_);

  // engine_spans.cc: from a request for memory to a span.
  struct Need {
    enum class Kind { kSpan, kSlab, kAfter, kRoom };
    Kind kind = Kind::kSpan;
    std::uint64_t bytes = 0;
    StreamIndex stream = kNoStream;
    Span* block = nullptr;  ///< kAfter: the block to extend
    Address at = 0;         ///< kRoom
    std::uint64_t room = 0;
    std::chrono::milliseconds wait{0};  ///< for memory that others hold
  };
  /// A thread that lacks memory. One at a time grows, and what is freed meanwhile wakes those that wait.
  struct Waiter {
    std::uint64_t bytes = 0;  ///< that it needs
    bool waits = false;       ///< for memory that others hold now
    bool woken = false;       ///< there may be enough
    std::stop_source stop{};  ///< calls its growth off
  };
  /// Finds or makes a span for `need`. The span is in use, but not handed out yet.
  /// Blocks  while the backing lends memory.
  Result<Span*, GrowError> satisfy(const Need& need, ThreadCache* cache);
  /// The part of satisfy() that needs no backing. Null: more memory is needed. Error: memory would not help.
  Result<Span*, GrowError> satisfy_locally(const Need& need, ThreadCache* cache) GPUMEM_REQUIRES(lock_);
  Span* take_for(const Need& need) GPUMEM_REQUIRES(lock_);
  Span* take_from_other_streams(const Need& need) GPUMEM_REQUIRES(lock_);
  Span* take_after(const Need& need) GPUMEM_REQUIRES(lock_);
  std::uint64_t missing_for(const Need& need) const GPUMEM_REQUIRES(lock_);
  Result<void> make_span_for(const Need& need) GPUMEM_REQUIRES(lock_);
  void poll_all() GPUMEM_REQUIRES(lock_);
  void settle(StreamIndex stream, std::uint64_t epoch) GPUMEM_REQUIRES(lock_);
  void retire_idle_streams() GPUMEM_REQUIRES(lock_);
  std::vector<Streams::Awaited> marks_of(const std::vector<StreamIndex>& streams) GPUMEM_REQUIRES(lock_);
  void wait_for_all();
  /// Flushes all threads' caches.
  void flush_caches() GPUMEM_REQUIRES(lock_);
  void flush_stopped(const std::vector<ThreadCache*>& caches) GPUMEM_REQUIRES(lock_);
  /// Adds extents that the backing has lent.
  void add_extents(std::vector<Extent> lent) GPUMEM_REQUIRES(lock_);
  Result<void, GrowError> obtain(const Need& need, const Waiter& waiter, Clock::time_point deadline);
  /// Waits until the waiter may grow. Growths that wait give way to those that do not.
  /// False: look again, because it was woken, the deadline has passed, or this is closing.
  bool take_turn(Waiter& waiter, Clock::time_point deadline) GPUMEM_REQUIRES(lock_);
  void end_turn();
  void begin_to_wait(Waiter& waiter) GPUMEM_REQUIRES(lock_);
  void leave(Waiter& waiter) GPUMEM_REQUIRES(lock_);
  bool is_waited_for() const GPUMEM_REQUIRES(lock_);
  /// Wakes the waiters that what is free now may be enough for.
  void wake_waiters() GPUMEM_REQUIRES(lock_);
  Backing::Request request_for(std::uint64_t missing) const GPUMEM_REQUIRES(lock_);

  // engine_blocks.cc: blocks in use.
  Result<void, GrowError> extend_span(const Found& found, Bytes to, StreamIndex stream, ThreadCache* cache);
  void shrink_span(Span& span, std::uint64_t to, StreamIndex stream) GPUMEM_REQUIRES(lock_);

  // engine_purge.cc: idle memory, closing.
  void age_caches() GPUMEM_REQUIRES(lock_);
  Bytes trim_now(Bytes bytes);
  std::uint64_t blocks_in_use() const GPUMEM_REQUIRES(lock_);
  /// Errors  kFailedPrecondition: already closed; `only_unused`, and blocks are in use.
  Result<void> shut_down(bool only_unused);
  /// `port`  the marks' own. It is kept alive by the caller.
  void wait_for(std::vector<Streams::Awaited> awaited, StreamPort& port);

  const std::uint64_t generation_;
  const EngineOptions options_;
  // Null once closed. Code that uses one without the lock holds its own shared_ptr.
  std::shared_ptr<Backing> backing_;
  std::shared_ptr<StreamPort> port_;
  const Address base_;
  const Bytes addresses_;
  const Bytes limit_;
  const std::string device_;
  const int ordinal_;
  AllocatorNumber number_;
  const std::shared_ptr<ThreadCache::EngineRef> engine_ref_;
  const std::uint64_t unit_;
  const Clock::time_point begun_ = Clock::now();
  std::optional<Error> broken_;
  AddressMap map_;
  std::atomic<std::uint32_t> seconds_{0};
  std::atomic<bool> closed_{false};
  std::atomic<int> closing_{0};  ///< calls that are about to close
  mutable Mutex lock_;
  Condition changed_;  ///< of the waiters
  std::vector<Waiter*> waiters_ GPUMEM_GUARDED_BY(lock_);
  Waiter* growing_ GPUMEM_GUARDED_BY(lock_) = nullptr;  ///< whose turn it is
  int askers_ GPUMEM_GUARDED_BY(lock_) = 0;             ///< for a turn that will not wait
  Heap heap_ GPUMEM_GUARDED_BY(lock_);
  ExtentHeap extents_ GPUMEM_GUARDED_BY(lock_);
  Streams streams_ GPUMEM_GUARDED_BY(lock_);
  SlabBins slab_bins_ GPUMEM_GUARDED_BY(lock_);
  std::unordered_map<Address, std::vector<StreamIndex>> recorded_ GPUMEM_GUARDED_BY(lock_);  ///< in use
  std::vector<HeldBlock> held_ GPUMEM_GUARDED_BY(lock_);
  struct Cached {
    std::shared_ptr<ThreadCache> cache;
    std::uint64_t uses = 0;
    int idle_ticks = 0;
  };
  std::vector<Cached> caches_ GPUMEM_GUARDED_BY(lock_);
  std::vector<std::string> tags_ GPUMEM_GUARDED_BY(lock_);
  IdleTracker idle_ GPUMEM_GUARDED_BY(lock_);
  struct Counters {
    std::array<std::uint64_t, kClasses + 1> slow{};  ///< allocations not served by a cache, by class
    std::array<std::uint64_t, kClasses> hits{};      ///< cache hits of threads that have ended
    std::uint64_t peak_used = 0;
    Bytes peak_committed;
    std::uint64_t growths = 0;
    std::uint64_t refused = 0;
    std::uint64_t given_back = 0;
  };
  Counters counters_ GPUMEM_GUARDED_BY(lock_);
  std::unique_ptr<Attachment> attachment_;
  std::optional<client::BackgroundTask> background_task_;
};

}  // namespace gpumem::allocator
