#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "client/allocator/address_map.h"
#include "client/allocator/backing.h"
#include "client/allocator/heap.h"
#include "client/allocator/housekeeper.h"
#include "client/allocator/shelves.h"
#include "client/allocator/stock.h"
#include "client/allocator/stream_port.h"
#include "client/allocator/streams.h"
#include "client/allocator/thread_cache.h"
#include "client/allocator/thread_table.h"
#include "gpumem/allocator.h"

namespace gpumem::allocator {

struct EngineOptions {
  std::chrono::milliseconds wait{0};
  std::chrono::milliseconds idle{2'000};
  bool grow_ahead = true;
  bool housekeeper = true;  ///< a thread of its own for what idles and what comes; tests may do without
};

/// What is behind an Allocator, over any backing. A block comes from the calling thread's cache; else from
/// the shelves (slots of runs) or the heap (pieces); else free extents are mapped together in the stock; else
/// the backing is asked for more.
/// Threads  any. One lock for everything but the caches; never held while the broker or the device is waited
///          for. Order: `growing_`, `lock_`.
class Engine {
 public:
  Engine(std::unique_ptr<Backing> backing, std::unique_ptr<StreamPort> streams, const EngineOptions& options);
  /// As Allocator's. Not run in a forked child.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The fast way, or zero: then allocate() tells.
  Address try_allocate(Bytes bytes, StreamHandle stream) {
    ThreadCache* cache = ThreadTable::find(number_.get());
    if (cache == nullptr || bytes.count - 1 >= kClassMost) return 0;
    return cache->take(bytes.count, stream, seconds_.load(std::memory_order_relaxed));
  }
  /// The fast way, or false: then deallocate() tells.
  bool try_deallocate(Address address, Bytes bytes, StreamHandle stream) {
    ThreadCache* cache = ThreadTable::find(number_.get());
    if (cache == nullptr) return false;
    Piece* piece = map_.find(address);
    if (piece == nullptr) [[unlikely]]
      return false;
    Slot* slot = slot_of(*piece, address);
    return slot != nullptr && cache->put(*piece, *slot, address, bytes.count, stream);
  }

  // As Allocator's.
  Result<Address, GrowError> allocate(Bytes bytes, StreamHandle stream, const Placement& placement = {});
  Result<void> deallocate(Address address, Bytes bytes, StreamHandle stream);
  Result<void, GrowError> extend(Address address, Bytes bytes, Bytes to, StreamHandle stream);
  Result<void> release_stream(StreamHandle stream);
  Result<Bytes> trim(Bytes bytes);
  Result<Tag> tag(std::string_view name);
  Result<AllocatorStatistics> statistics() const;
  Result<std::vector<BlockInfo>> snapshot() const;
  Result<void> close();
  /// As close, with what blocks there are.
  Result<void> end();

  /// What of the committed memory is in wholly free extents: for answering pressure, never waits.
  Bytes surplus() const;
  /// Does what the housekeeper would do now: for tests, which have none.
  void keep_house(std::chrono::steady_clock::time_point now);
  /// The calling thread, whose cache it is, ends.
  void retire(ThreadCache& cache);

  /// Goes when this is closed or destroyed, before the backing does.
  struct Companion {
    virtual ~Companion() = default;
  };
  void accompany(std::unique_ptr<Companion> companion) { companion_ = std::move(companion); }

  Bytes limit() const { return limit_; }
  Bytes granularity() const { return {unit_}; }
  const std::string& device() const { return device_; }
  int ordinal() const { return ordinal_; }

 private:
  struct Asked {
    std::uint64_t bytes = 0;  ///< as asked for
    StreamHandle stream = nullptr;
    Placement placement;
  };
  using Clock = std::chrono::steady_clock;

  static Slot* slot_of(const Piece& piece, Address address) {
    const std::uint64_t offset = address - piece.base;
    const std::uint64_t slot = slot_at(offset, piece.reciprocal);
    return slot * piece.slot_bytes == offset ? &piece.slots[slot] : nullptr;
  }

  bool is_usable() const;  ///< the next, without words
  Result<void> usable() const;
  static Error is_closed();
  /// Errors  kFailedPrecondition (closed); as Streams::index_of.
  Result<StreamIndex> stream_of(StreamHandle stream, ThreadCache* cache) GPUMEM_REQUIRES(lock_);
  ThreadCache* own_cache();

  // engine.cc: blocks.
  Result<Address, GrowError> allocate_slot(const Asked& asked, ThreadCache* cache);
  Result<Address, GrowError> allocate_piece(const Asked& asked, ThreadCache* cache);
  Result<Address, GrowError> allocate_roomy(const Asked& asked, ThreadCache* cache);
  Address take_cached(const Asked& asked, ThreadCache* cache) GPUMEM_REQUIRES(lock_);
  Address hand_out(Piece& piece, const Asked& asked, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  Address take_slot(const Asked& asked, ThreadCache* cache, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  void mark_used(Slot& slot, const Asked& asked, StreamIndex stream, const ThreadCache* cache);
  bool has_tag(Tag tag) const;
  std::uint64_t cache_budget() const GPUMEM_REQUIRES(lock_);
  void tag_block(Address address, Tag tag) GPUMEM_REQUIRES(lock_);
  struct Found {
    Piece* piece = nullptr;
    Slot* slot = nullptr;
    BlockWord word;
  };
  /// Errors  as deallocate's.
  Result<Found> find(Address address, Bytes bytes) const GPUMEM_REQUIRES(lock_);
  void free_block(Piece& piece, const Block& block, StreamIndex stream) GPUMEM_REQUIRES(lock_);
  void free_piece(Piece& piece, StreamIndex stream, std::uint64_t epoch) GPUMEM_REQUIRES(lock_);
  /// Takes back what leaves a thread's cache.
  ThreadCache::Emptied freeing();
  void take_back(const Block& block, StreamIndex stream) GPUMEM_THREAD(no_thread_safety_analysis);

  // engine_room.cc: from a wish for memory to a piece.
  struct Need {
    enum class Kind { kPiece, kRun, kBehind, kRoom };
    Kind kind = Kind::kPiece;
    std::uint64_t bytes = 0;
    StreamIndex stream = kNoStream;
    Piece* block = nullptr;  ///< kBehind: the one that is to have more
    Address at = 0;          ///< kRoom
    std::uint64_t room = 0;
  };
  /// Blocks while the backing is asked. The piece is in use, but nobody's yet.
  Result<Piece*, GrowError> satisfy(const Need& need, ThreadCache* cache);
  /// What can be done without the backing. Null: nothing; an error: never.
  Result<Piece*, GrowError> satisfy_here(const Need& need, ThreadCache* cache) GPUMEM_REQUIRES(lock_);
  Piece* take_for(const Need& need) GPUMEM_REQUIRES(lock_);
  Piece* take_ordered(const Need& need) GPUMEM_REQUIRES(lock_);
  Piece* take_behind(const Need& need) GPUMEM_REQUIRES(lock_);
  std::uint64_t missing_for(const Need& need) const GPUMEM_REQUIRES(lock_);
  Result<void> make_for(const Need& need) GPUMEM_REQUIRES(lock_);
  void poll_all() GPUMEM_REQUIRES(lock_);
  void settle(StreamIndex stream, std::uint64_t epoch) GPUMEM_REQUIRES(lock_);
  void retire_stream(StreamIndex stream) GPUMEM_REQUIRES(lock_);
  std::vector<Streams::Awaited> marks_of(const std::vector<StreamIndex>& streams) GPUMEM_REQUIRES(lock_);
  void wait_for_all();
  /// Empties all threads' caches, of one stream or (kNoStream) all.
  void empty_caches(StreamIndex only = kNoStream) GPUMEM_REQUIRES(lock_);
  void empty_stopped(const std::vector<ThreadCache*>& caches, StreamIndex only) GPUMEM_REQUIRES(lock_);
  /// Books what the backing has lent.
  void take_in(std::vector<Extent> lent) GPUMEM_REQUIRES(lock_);
  Result<void, GrowError> obtain(const Need& need, std::chrono::milliseconds wait);
  Backing::Wish wish_for(std::uint64_t missing) const GPUMEM_REQUIRES(lock_);

  // engine_extend.cc
  Result<void, GrowError> extend_piece(const Found& found, Bytes to, StreamIndex stream, ThreadCache* cache);
  void shrink_piece(Piece& piece, std::uint64_t to, StreamIndex stream) GPUMEM_REQUIRES(lock_);

  // engine_house.cc: what is not needed goes back, and what will be comes.
  void age_caches() GPUMEM_REQUIRES(lock_);
  void grow_ahead(Clock::time_point now);
  Bytes trim_now(Bytes bytes);
  std::uint64_t blocks_in_use() const GPUMEM_REQUIRES(lock_);
  /// Errors  kFailedPrecondition: closed already; blocks are in use, and `only_unused`.
  Result<void> shut(bool only_unused);
  void wait_for(const std::vector<Streams::Awaited>& awaited);

  const std::uint64_t generation_;
  const EngineOptions options_;
  // These two until it is closed; whoever uses one without the lock has a share in it.
  std::shared_ptr<Backing> backing_;
  std::shared_ptr<StreamPort> port_;
  const Address base_;
  const Bytes addresses_;
  const Bytes limit_;
  const std::string device_;
  const int ordinal_;
  AllocatorNumber number_;
  const std::shared_ptr<ThreadCache::Home> home_;
  const std::uint64_t unit_;
  const Clock::time_point begun_ = Clock::now();
  std::optional<Error> broken_;
  AddressMap map_;
  std::atomic<std::uint32_t> seconds_{0};
  std::atomic<bool> closed_{false};
  Mutex growing_;  ///< one growth at a time
  mutable Mutex lock_;
  Heap heap_ GPUMEM_GUARDED_BY(lock_);
  Stock stock_ GPUMEM_GUARDED_BY(lock_);
  Streams streams_ GPUMEM_GUARDED_BY(lock_);
  Shelves shelves_ GPUMEM_GUARDED_BY(lock_);
  struct Cached {
    std::shared_ptr<ThreadCache> cache;
    std::uint64_t uses = 0;
    int idle_ticks = 0;
  };
  std::vector<Cached> caches_ GPUMEM_GUARDED_BY(lock_);
  std::vector<std::string> tags_ GPUMEM_GUARDED_BY(lock_);
  IdleWatch idle_ GPUMEM_GUARDED_BY(lock_);
  Trend trend_ GPUMEM_GUARDED_BY(lock_);
  struct Counters {
    std::array<std::uint64_t, kClasses + 1> slow{};  ///< allocations that no thread's cache served, by class
    std::array<std::uint64_t, kClasses> hits{};      ///< of threads that have ended
    std::uint64_t peak_used = 0;
    Bytes peak_committed;
    std::uint64_t growths = 0;
    std::uint64_t refused = 0;
    std::uint64_t given_back = 0;
  };
  Counters counters_ GPUMEM_GUARDED_BY(lock_);
  std::unique_ptr<Companion> companion_;
  std::unique_ptr<Housekeeper> housekeeper_;
};

}  // namespace gpumem::allocator
