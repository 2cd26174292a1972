#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/allocator/arena.h"
#include "client/allocator/idle_tracker.h"
#include "client/background_task.h"
#include "gpumem/options.h"
#include "gpumem/statistics.h"

namespace gpumem::allocator {

struct EngineOptions {
  std::chrono::milliseconds wait{0};
  std::chrono::milliseconds idle{2'000};
  bool background_task = true;  ///< returns idle memory; tests may do without
};

/// The implementation of Allocator, over any backing: an arena, its one lock, and when it grows and shrinks.
/// Threads  any. The lock guards everything but the threads' caches. It is never held while waiting for the
///          broker or the device.
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
    Slot* slot = span->slot_of(address);
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
  using Clock = std::chrono::steady_clock;

  bool is_usable() const;  ///< as usable(), without a message
  Result<void> usable() const;
  /// Errors  kFailedPrecondition (closed); as Streams::index_of.
  Result<StreamIndex> stream_of(StreamHandle stream) GPUMEM_REQUIRES(lock_);
  /// The calling thread's cache, made at the first call. Null if it can have none.
  ThreadCache* own_cache();

  /// Calls `end` when its scope is left, by an exception (no host memory) too.
  template <class End>
  struct [[nodiscard]] OnExit {
    End end;
    ~OnExit() { end(); }
  };
  template <class End>
  OnExit(End) -> OnExit<End>;  // which clang 14 does not find by itself
  /// A call holds the stream no more.   `stream`  or kNoStream: none was held.
  void let_go(StreamIndex stream);

  // engine.cc: blocks.
  /// Errors  kInvalidArgument, kResourceExhausted: such a block can never be had.
  Result<void> check(const BlockRequest& request) const;
  Result<Address, GrowError> allocate_slowly(const BlockRequest& request, StreamHandle stream,
                                             std::chrono::milliseconds wait, ThreadCache* cache);
  /// The stream in whose order a block is freed that the caller frees on `stream`. Errors  as stream_of.
  Result<StreamIndex> order_of_free(StreamHandle stream, StreamIndex allocated_on) GPUMEM_REQUIRES(lock_);
  Result<void, GrowError> extend_span(Span& span, Bytes to, StreamIndex stream, ThreadCache* cache);

  // engine_growth.cc: what an arena cannot do alone.
  /// As Arena::find_span, with as much more memory as that takes.   Blocks  while the backing lends memory.
  Result<Span*, GrowError> satisfy(const Need& need, ThreadCache* cache);
  Result<void, GrowError> obtain(const Need& need, const GrowthQueue::Waiter& waiter,
                                 Clock::time_point deadline);
  Backing::Request request_for(std::uint64_t missing) const GPUMEM_REQUIRES(lock_);
  /// Ends the waiter's turn, and its wait.
  void leave(GrowthQueue::Waiter& waiter);
  void wait_for_all();
  /// `port`  the marks' own. It is kept alive by the caller. False: not all could be waited for.
  bool wait_for(std::vector<Streams::Awaited> awaited, StreamPort& port);

  // engine_upkeep.cc: giving back, closing.
  Bytes trim_now(Bytes bytes);
  /// Errors  kFailedPrecondition: already closed; `only_unused`, and blocks are in use.
  Result<void> shut_down(bool only_unused);
  /// The first step: from now on every call is refused. Returns how many blocks are still in use.
  Result<std::uint64_t> refuse_calls(bool only_unused) GPUMEM_REQUIRES(lock_);
  /// The last step: returns everything or, unless the `work` is done, what none of it can use.
  Result<void> give_all_back(const Result<void>& work);

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
  AddressMap map_;
  std::atomic<std::uint32_t> seconds_{0};
  std::atomic<bool> closed_{false};
  std::atomic<int> closing_{0};  ///< calls that are about to close
  mutable Mutex lock_;
  Arena arena_ GPUMEM_GUARDED_BY(lock_);
  std::vector<std::string> tags_ GPUMEM_GUARDED_BY(lock_);
  IdleTracker idle_ GPUMEM_GUARDED_BY(lock_);
  std::unique_ptr<Attachment> attachment_;
  std::optional<client::BackgroundTask> background_task_;
};

}  // namespace gpumem::allocator
