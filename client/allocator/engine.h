#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/allocator/arena.h"
#include "client/allocator/steady_growth.h"
#include "client/process/background_task.h"
#include "gpumem/options.h"
#include "gpumem/statistics.h"

namespace gpumem::allocator {

/// Finds how much free memory has been idle for long enough to be returned: the least that was free between
/// ticks, over a window of ticks.
class IdleTracker {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTicks = 8;   ///< in the idle time
  static constexpr int kWindow = 5;  ///< ticks that count; the others leave time to flush idle thread caches
  static constexpr int kCacheTicks = 2;  ///< after which a cache counts as idle

  explicit IdleTracker(std::chrono::milliseconds idle) : tick_(idle / kTicks) {}

  bool is_due(Clock::time_point now) const { return now >= next_; }
  /// `low_water`  the least that was free since the last call. Returns what was free during the whole window.
  std::uint64_t tick(Clock::time_point now, std::uint64_t low_water) {
    next_ = now + tick_;
    low_[at_++ % low_.size()] = low_water;
    return at_ < low_.size() ? 0 : *std::ranges::min_element(low_);
  }

 private:
  const std::chrono::nanoseconds tick_;
  Clock::time_point next_{};
  std::array<std::uint64_t, kWindow> low_{};
  std::size_t at_ = 0;
};

struct EngineOptions {
  std::chrono::milliseconds wait{0};
  std::chrono::milliseconds idle{2'000};
  bool background_task = true;  ///< returns idle memory; tests may do without
};

/// How long a call may wait.
struct Patience {
  std::optional<std::chrono::milliseconds> wait;  ///< for memory that others hold; none: as EngineOptions
  std::chrono::nanoseconds taken{0};              ///< of the broker's timeout, before the call
  bool is_probe = false;                          ///< a refusal is no denial: the caller asks again
  bool is_at_once = false;  ///< only what is free now: waits neither for the broker nor for the device
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

  /// The fastest path: the legacy default stream alone. It calls nothing. Zero: call try_allocate().
  Address allocate_by_default(Bytes bytes, StreamHandle stream) {
    ThreadCache* cache = ThreadTable::find(number_.get());
    if (cache == nullptr || !Streams::is_legacy(stream)) [[unlikely]]
      return 0;
    return cache->take(bytes.count, seconds_.load(std::memory_order_relaxed));
  }
  /// Likewise. False: call try_deallocate().
  bool deallocate_by_default(Address address, Bytes bytes, StreamHandle stream) {
    ThreadCache* cache = ThreadTable::find(number_.get());
    if (cache == nullptr || !Streams::is_legacy(stream)) [[unlikely]]
      return false;
    Span* span = map_.find(address);
    Slot* slot = span == nullptr ? nullptr : span->slot_of(address);
    return slot != nullptr && cache->put(*span, *slot, address, bytes.count);
  }
  /// Every path without a lock. Zero: call allocate().
  Address try_allocate(Bytes bytes, StreamHandle stream);
  /// Likewise. False: call deallocate().
  bool try_deallocate(Address address, Bytes bytes, StreamHandle stream);

  // As Allocator's.
  Result<Address, GrowError> allocate(Bytes bytes, StreamHandle stream, const Placement& placement = {},
                                      const Patience& patience = {});
  Result<void> deallocate(Address address, Bytes bytes, StreamHandle stream);
  Result<void, GrowError> extend(Address address, Bytes bytes, Bytes to, StreamHandle stream);
  Result<void> record_stream(Address address, StreamHandle stream);
  Result<void> release_stream(StreamHandle stream);
  /// Whether the legacy default stream is that of the calling thread's context. Each context has one, and the
  /// allocator means that of one context by all.
  bool is_default_current() const;
  /// Waits for the work that was given to the legacy default stream so far.
  Result<void> wait_for_default();
  /// As Arena::mark_streams. In a call of the program, which may use the streams further.
  void mark_streams();
  Result<Bytes> trim(Bytes bytes);
  /// Trims only memory that no work uses any more. Does not wait for streams.
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
  /// `only_unused`  refuses while blocks are in use.
  Result<void> close(bool only_unused = true);

  /// Committed memory in wholly free extents and in caches, for answering pressure. Never waits.
  Bytes surplus() const;
  /// Does what the background task would do at `now`; for tests, which have none.
  void background_tick(std::chrono::steady_clock::time_point now);
  /// Removes `cache`, whose owner, the calling thread, ends. Calls no driver.
  void retire(ThreadCache& cache);

  /// `attachment` ends when this is closed or destroyed, before the backing.
  void attach(std::shared_ptr<void> attachment) { attachment_ = std::move(attachment); }

  /// Whether `address` is one of the addresses that blocks of this engine can have.
  bool has_address(Address address) const { return address - properties_.base < properties_.addresses.count; }
  const Backing::Properties& properties() const { return properties_; }

 private:
  using Clock = std::chrono::steady_clock;

  Result<void> usable() const;
  /// The calling thread's cache, made at the first call. Null if it can have none.
  ThreadCache* own_cache();

  // engine.cc: blocks.
  /// Errors  kInvalidArgument, kResourceExhausted: such a block can never be had.
  Result<void> check(Bytes bytes, const Placement& placement = {}) const GPUMEM_REQUIRES(lock_);
  /// The stream in whose order a block is freed that the caller frees on `stream`. Errors  as
  /// Streams::index_of.
  Result<StreamIndex> order_of_free(StreamHandle stream, StreamIndex allocated_on) GPUMEM_REQUIRES(lock_);

  // engine_growth.cc: what an arena cannot do alone.
  /// As Arena::find_span, with as much more memory as that takes. Answers what `finish` makes of the span,
  /// under the lock. The caller has held the need's stream; it is let go.   Blocks  while the backing lends
  /// memory.
  using Finish = std::function<Address(Span&)>;
  Result<Address, GrowError> satisfy(Need need, const Finish& finish);
  struct Leave;
  /// What the backing is asked for. `min_bytes` is zero if nothing is missing any more.
  Backing::Request request_for(const Need& need, const GrowthQueue::Waiter& waiter,
                               Clock::time_point deadline) GPUMEM_REQUIRES(lock_);
  /// Ends the waiter's turn.
  Result<void, GrowError> obtain(Backing& backing, const Backing::Request& request,
                                 const GrowthQueue::Waiter& waiter);
  void wait_for_all();
  /// `port`  the marks' own. It is kept alive by the caller. False: not all could be waited for.
  bool wait_for(std::vector<Streams::Awaited> awaited, StreamPort& port);

  // engine_upkeep.cc: giving back, closing.
  /// The first step: from now on every call is refused. Returns how many blocks are still in use.
  /// Errors  kFailedPrecondition: already closed; `only_unused`, and blocks are in use.
  Result<std::uint64_t> refuse_calls(bool only_unused) GPUMEM_REQUIRES(lock_);
  /// The last step: returns everything or, unless the `work` is done, what none of it can use.
  Result<void> give_all_back(const Result<void>& work);

  const std::uint64_t generation_;
  const EngineOptions options_;
  // Null once closed. Code that uses one without the lock holds its own shared_ptr.
  std::shared_ptr<Backing> backing_;
  std::shared_ptr<StreamPort> port_;
  const Backing::Properties properties_;
  AllocatorNumber number_;
  const std::shared_ptr<ThreadCache::EngineRef> engine_ref_;
  const std::uint64_t unit_;
  const Clock::time_point begun_ = Clock::now();
  AddressMap map_;
  std::atomic<std::uint32_t> seconds_{0};
  std::atomic<bool> closed_{false};
  mutable Mutex lock_;
  Arena arena_ GPUMEM_GUARDED_BY(lock_);
  std::vector<std::string> tags_ GPUMEM_GUARDED_BY(lock_);
  IdleTracker idle_ GPUMEM_GUARDED_BY(lock_);
  SteadyGrowth steady_ GPUMEM_GUARDED_BY(lock_){unit_};
  std::shared_ptr<void> attachment_;
  std::optional<client::BackgroundTask> background_task_;
};

}  // namespace gpumem::allocator
