#include "client/allocator/engine.h"

#include <algorithm>
#include <utility>

#include "client/process/fork_guard.h"

namespace gpumem::allocator {
namespace {

constexpr std::size_t kTagBytes = 63;
constexpr std::size_t kMostTags = 255;
// So soon an allocation that waits hears of work that the device has finished.
constexpr std::chrono::milliseconds kLongestTick{250};

Error is_closed() { return {Code::kFailedPrecondition, "the allocator has been closed"}; }

}  // namespace

Engine::Engine(std::unique_ptr<Backing> backing, std::unique_ptr<StreamPort> streams,
               const EngineOptions& options)
    : generation_(client::process_generation()),
      options_(options),
      backing_(std::move(backing)),
      port_(std::move(streams)),
      properties_(backing_->properties()),
      engine_ref_(std::make_shared<ThreadCache::EngineRef>()),
      unit_(properties_.granularity.count),
      map_(properties_.base, properties_.addresses),
      arena_(*backing_, *port_, map_, seconds_),
      idle_(options.idle) {
  engine_ref_->engine = this;
  ThreadTable::prepare();
  ThreadCache::prepare();
  if (options.background_task) {
    const auto tick = std::clamp<std::chrono::milliseconds>(options.idle / IdleTracker::kTicks,
                                                            std::chrono::milliseconds(5), kLongestTick);
    background_task_.emplace(client::BackgroundTask::When{.period = tick}, [this] {
      background_tick(Clock::now());
      return true;
    });
    (void)background_task_->begin();  // without it, idle memory is returned only when the broker asks
  }
}

Engine::~Engine() { (void)close(false); }

Result<void> Engine::usable() const {
  if (auto ours = client::check_not_forked(generation_); !ours) return ours;
  if (closed_.load()) return is_closed();
  return {};
}

ThreadCache* Engine::own_cache() {
  if (!ThreadCache::can_be_stopped()) return nullptr;
  ThreadCache* found = ThreadTable::find(number_.get());
  if (found != nullptr && found->belongs_to(engine_ref_)) return found;
  if (number_.get() == 0 || ThreadTable::is_ending()) return nullptr;
  const MutexLock lock(lock_);
  return closed_.load() ? nullptr : arena_.caches().add(number_, engine_ref_, *port_);
}

void Engine::retire(ThreadCache& cache) {
  const MutexLock lock(lock_);
  if (!closed_.load()) arena_.caches().retire(cache);
}

// ---- Without the lock ----

Address Engine::try_allocate(Bytes bytes, StreamHandle stream) {
  ThreadCache* cache = ThreadTable::find(number_.get());
  if (cache == nullptr || Streams::is_per_thread(stream)) return 0;
  return cache->take_of(stream, bytes.count, seconds_.load(std::memory_order_relaxed));
}

bool Engine::try_deallocate(Address address, Bytes bytes, StreamHandle stream) {
  ThreadCache* cache = ThreadTable::find(number_.get());
  if (cache == nullptr || Streams::is_per_thread(stream)) return false;
  Span* span = map_.find(address);
  Slot* slot = span == nullptr ? nullptr : span->slot_of(address);
  return slot != nullptr && cache->put_of(stream, *span, *slot, address, bytes.count);
}

// ---- Allocating ----

Result<void> Engine::check(Bytes bytes, const Placement& placement) const {
  if (bytes.is_zero()) return Error{Code::kInvalidArgument, "a block has at least one byte"};
  if (bytes > properties_.limit) {
    return Error{Code::kResourceExhausted, "a block of " + to_string(bytes) +
                                               " is larger than the allocator's limit of " +
                                               to_string(properties_.limit)};
  }
  if (placement.tag.number > tags_.size()) {
    return Error{Code::kInvalidArgument, "there is no tag " + std::to_string(placement.tag.number)};
  }
  if (placement.room > properties_.addresses) {
    return Error{Code::kInvalidArgument,
                 "room of " + to_string(placement.room) + " is more than the addresses there are"};
  }
  return {};
}

Result<Address, GrowError> Engine::allocate(Bytes bytes, StreamHandle stream, const Placement& placement,
                                            const Patience& patience) {
  if (auto can = usable(); !can) return GrowError(can.error());
  ThreadCache* cache = own_cache();
  Need need;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return GrowError(is_closed());
    if (auto can = check(bytes, placement); !can) return GrowError(can.error());
    auto index = arena_.streams().index_of(stream);
    if (!index) return GrowError(index.error());
    auto known = arena_.need_for(bytes.count, placement);
    if (!known) return GrowError(known.error());
    need = *known;
    need.stream = *index;
    need.cache = cache;
    if (const Address at = arena_.take_at_once(need)) return at;
    arena_.streams().hold(*index);
    if (patience.is_at_once) {
      auto found = arena_.find_span(need);
      const Address at = found && *found != nullptr ? arena_.finish(**found, need) : 0;
      arena_.streams().let_go(*index);
      if (at != 0) return at;
      return found ? GrowError({Code::kResourceExhausted, "there is no such free block"}) : found.error();
    }
  }
  need.wait = patience.wait.value_or(options_.wait);
  need.taken = patience.taken;
  need.is_probe = patience.is_probe;
  const auto finish = [&](Span& span) GPUMEM_REQUIRES(lock_) { return arena_.finish(span, need); };
  return satisfy(need, std::ref(finish));
}

// ---- Freeing ----

Result<void> Engine::deallocate(Address address, Bytes bytes, StreamHandle stream) {
  if (auto can = usable(); !can) return can;
  ThreadCache* cache = Streams::is_per_thread(stream) ? nullptr : own_cache();
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  auto found = arena_.find(address, bytes);
  if (!found) return found.error();
  auto index = order_of_free(stream, found->word.stream());
  if (!index) return index.error();
  return arena_.free(*found, *index, cache);
}

// The per-thread default stream of the thread that allocated the block is another one, on which only that
// thread can set a mark. The legacy default stream comes after the work of both. It needs no mark now, so it
// also serves a thread that is about to end, whose driver state may be gone.
Result<StreamIndex> Engine::order_of_free(StreamHandle stream, StreamIndex allocated_on) {
  Streams& streams = arena_.streams();
  if (!Streams::is_per_thread(stream)) return streams.index_of(stream);
  if (ThreadTable::is_ending()) return streams.index_of(nullptr);
  auto own = streams.index_of(stream);
  return !own || *own == allocated_on ? own : streams.index_of(nullptr);
}

// The per-thread default stream can be marked by its own thread only, and another one may free the block. The
// legacy default stream comes after the work of all threads.
Result<void> Engine::record_stream(Address address, StreamHandle stream) {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  auto found = arena_.find(address, kUnknownSize);
  if (!found) return found.error();
  auto index = arena_.streams().index_of(Streams::is_per_thread(stream) ? nullptr : stream);
  if (!index) return index.error();
  return arena_.record(*found, *index);
}

Result<void> Engine::release_stream(StreamHandle stream) {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  return arena_.release_stream(stream);
}

void Engine::mark_streams() {
  if (!usable()) return;
  const MutexLock lock(lock_);
  if (!closed_.load()) arena_.mark_streams();
}

// ---- Blocks that become longer or shorter in place, and blocks that are shared ----

Result<void, GrowError> Engine::extend(Address address, Bytes bytes, Bytes to, StreamHandle stream) {
  if (auto can = usable(); !can) return GrowError(can.error());
  Need need{.kind = Need::Kind::kAfter, .requested = to.count, .cache = own_cache(), .wait = options_.wait};
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return GrowError(is_closed());
    if (auto can = check(to); !can) return GrowError(can.error());
    auto found = arena_.find(address, bytes);
    if (!found) return GrowError(found.error());
    auto index = arena_.streams().index_of(stream);
    if (!index) return GrowError(index.error());
    Span& span = *found->span;
    if (span.use == Span::Use::kSlab) {
      if (to.count > span.slot_bytes) {
        return GrowError(
            {Code::kAborted, "a block of up to 16 KiB cannot become larger than its size class of " +
                                 to_string(Bytes{span.slot_bytes}) + "; give blocks that are to grow room"});
      }
      found->block.slot->set(found->word.without_bytes().with_bytes(to.count));
      return {};
    }
    const std::uint64_t takes = rounded_up(to.count, kQuantum);
    if (takes <= span.bytes) {
      arena_.resize(span, to.count, *index);
      return {};
    }
    need.bytes = takes - span.bytes;
    need.stream = *index;
    need.beside = &span;
    arena_.streams().hold(*index);
  }
  const auto finish = [&](Span& span) GPUMEM_REQUIRES(lock_) {
    arena_.resize(span, to.count, need.stream);
    return address;
  };
  auto done = satisfy(need, std::ref(finish));
  return done ? Result<void, GrowError>() : done.error();
}

Result<Backing::HandleBytes> Engine::export_handle(Address address, Bytes offset, Bytes bytes,
                                                   const ExportOptions& options) {
  if (auto can = usable(); !can) return can.error();
  std::shared_ptr<Backing> backing;
  {
    const MutexLock lock(lock_);
    if (closed_.load()) return is_closed();
    const auto block = arena_.find(address, kUnknownSize);
    if (!block) return block.error();
    if (bytes.is_zero()) bytes = block->bytes.minus(offset);
    const auto end = offset.plus(bytes);
    if (bytes.is_zero() || !end || *end > block->bytes) {
      return Error{Code::kInvalidArgument, to_string(bytes) + " from " + to_string(offset) +
                                               " on are not in the block of " + to_string(block->bytes)};
    }
    backing = backing_;
  }
  return backing->export_range(address + offset.count, bytes, options);
}

Result<void> Engine::allow(int ordinal) {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  return closed_.load() ? Result<void>(is_closed()) : backing_->allow(ordinal);
}

// ---- Tags and figures ----

Result<Tag> Engine::tag(std::string_view name) {
  if (auto can = usable(); !can) return can.error();
  if (name.empty() || name.size() > kTagBytes) {
    return Error{Code::kInvalidArgument, "a tag has 1 to " + std::to_string(kTagBytes) + " bytes"};
  }
  const MutexLock lock(lock_);
  const auto found = std::ranges::find(tags_, name);
  const auto number = static_cast<std::size_t>(found - tags_.begin()) + 1;
  if (number > kMostTags) {
    return Error{Code::kResourceExhausted, "there are " + std::to_string(kMostTags) + " tags already"};
  }
  if (found == tags_.end()) tags_.emplace_back(name);
  return Tag{static_cast<std::uint8_t>(number)};
}

std::vector<std::string> Engine::tags() const {
  const MutexLock lock(lock_);
  return tags_;
}

Result<AllocatorStatistics> Engine::statistics() const {
  if (auto can = usable(); !can) return can.error();
  const MutexLock lock(lock_);
  return arena_.statistics();
}

Result<void> Engine::reset_peaks() {
  if (auto can = usable(); !can) return can;
  const MutexLock lock(lock_);
  arena_.reset_peaks();
  return {};
}

Result<std::vector<BlockInfo>> Engine::snapshot() const {
  if (auto can = usable(); !can) return can.error();
  const MutexLock lock(lock_);
  return arena_.snapshot(tags_);
}

}  // namespace gpumem::allocator
