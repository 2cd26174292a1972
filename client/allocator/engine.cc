#include "client/allocator/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/fork_guard.h"

namespace gpumem::allocator {
namespace {

// The part of committed memory that one thread's cache may hold.
constexpr std::uint64_t kCachePart = 128;
constexpr std::uint64_t kLeastCache = mebibytes(1).count;
constexpr std::uint64_t kMostCache = mebibytes(4).count;

Error invalid(Address address, const std::string& what) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (; address != 0 || hex.empty(); address >>= 4) hex.insert(hex.begin(), kDigits[address & 15]);
  return {Code::kInvalidArgument, "0x" + hex + " " + what};
}

}  // namespace

Engine::Engine(std::unique_ptr<Backing> backing, std::unique_ptr<StreamPort> streams,
               const EngineOptions& options)
    : generation_(client::process_generation()),
      options_(options),
      backing_(std::move(backing)),
      port_(std::move(streams)),
      base_(backing_->base()),
      addresses_(backing_->addresses()),
      limit_(backing_->limit()),
      device_(backing_->device()),
      ordinal_(backing_->ordinal()),
      engine_ref_(std::make_shared<ThreadCache::EngineRef>()),
      unit_(backing_->granularity().count),
      heap_(unit_),
      extents_(*backing_, heap_),
      streams_(*port_),
      idle_(options.idle) {
  engine_ref_->engine = this;
  auto map = AddressMap::create(base_, addresses_);
  if (map) {
    map_ = std::move(*map);
  } else {
    broken_ = map.error();
  }
  if (options.background_task) {
    const auto tick = std::clamp<std::chrono::milliseconds>(
        options.idle / IdleTracker::kTicks, std::chrono::milliseconds(5), std::chrono::seconds(1));
    background_task_.emplace(client::BackgroundTask::When{.period = tick}, [this] {
      background_tick(Clock::now());
      return true;
    });
    (void)background_task_->begin();  // without it, idle memory is returned only when the broker asks
  }
}

Engine::~Engine() { (void)shut_down(false); }

bool Engine::is_usable() const {
  return generation_ == client::process_generation() && !closed_.load() && !broken_;
}

Result<void> Engine::usable() const {
  if (auto ours = client::check_not_forked(generation_); !ours) return ours;
  if (closed_.load()) return is_closed();
  if (broken_) return *broken_;
  return {};
}

Error Engine::is_closed() { return {Code::kFailedPrecondition, "the allocator has been closed"}; }

Result<StreamIndex> Engine::stream_of(StreamHandle stream) {
  if (closed_.load()) return is_closed();
  return streams_.index_of(stream,
                           [this]() GPUMEM_THREAD(no_thread_safety_analysis) { retire_idle_streams(); });
}

ThreadCache* Engine::own_cache() {
  if (number_.get() == 0 || !ThreadCache::can_be_stopped() || ThreadTable::is_ending()) return nullptr;
  ThreadCache* found = ThreadTable::find(number_.get());
  if (found != nullptr && found->belongs_to(engine_ref_)) return found;
  const MutexLock lock(lock_);
  std::vector<bool> taken(caches_.size() + 2);
  for (const Cached& cached : caches_) {
    if (cached.cache->number() < taken.size()) taken[cached.cache->number()] = true;
  }
  CacheNumber number = 1;
  while (taken[number]) ++number;
  auto made = std::make_shared<ThreadCache>(engine_ref_, number);
  if (closed_.load()) return nullptr;
  ThreadCache* const fresh = made.get();
  if (is_waited_for()) ThreadCache::stop({&fresh, 1});
  caches_.push_back({made});
  found = made.get();
  ThreadTable::set(number_.get(), std::move(made));
  return found;
}

// ---- Allocating ----

Result<void> Engine::check(const Request& request) const {
  if (request.bytes == 0) return Error{Code::kInvalidArgument, "a block has at least one byte"};
  if (request.bytes > limit_.count) {
    return Error{Code::kResourceExhausted, "a block of " + to_string(Bytes{request.bytes}) +
                                               " is larger than the allocator's limit of " +
                                               to_string(limit_)};
  }
  const auto& [tag, room] = request.placement;
  if (tag.number != 0 && !has_tag(tag)) {
    return Error{Code::kInvalidArgument, "there is no tag " + std::to_string(tag.number)};
  }
  if (room > addresses_) {
    return Error{Code::kInvalidArgument,
                 "room of " + to_string(room) + " is more than the addresses there are"};
  }
  return {};
}

Result<Address, GrowError> Engine::allocate(Bytes bytes, StreamHandle stream, const Placement& placement,
                                            std::chrono::milliseconds wait) {
  if (!is_usable()) return GrowError(usable().error());
  Request request{bytes.count, stream, placement, wait};
  if (auto can = check(request); !can) return GrowError(can.error());
  ThreadCache* cache = own_cache();
  if (cache != nullptr && Streams::is_legacy(stream) && placement.room.is_zero()) {
    request.cache = cache;
    const std::uint32_t now = seconds_.load(std::memory_order_relaxed);
    if (bytes.count <= kClassMost && placement.tag.number == 0) {  // without a lock
      if (const Address cached = cache->take(bytes.count, now)) return cached;
    }
  }
  return allocate_slowly(request, cache);
}

Result<Address, GrowError> Engine::allocate_slowly(const Request& request, ThreadCache* cache) {
  Need need;
  {
    const MutexLock lock(lock_);
    auto index = stream_of(request.stream);
    if (!index) return GrowError(index.error());
    if (request.cache != nullptr) request.cache->use(*index, cache_budget());
    need = need_for(request, *index);
    if (const Address at = take_at_once(request, need)) return at;
    if (need.kind == Need::Kind::kRoom) need.at = extents_.reserve_room(need.room);
    if (need.kind == Need::Kind::kRoom && need.at == 0) {
      return GrowError({Code::kResourceExhausted,
                        "no " + to_string(Bytes{need.room}) + " of addresses are left for the block's room"});
    }
    streams_.hold(*index);
  }
  auto span = satisfy(need, cache);
  const MutexLock lock(lock_);
  streams_.let_go(need.stream);
  if (!span) {
    if (need.kind == Need::Kind::kRoom) extents_.release_room(need.at, need.at, need.at + need.room);
    if (const Address at = closed_.load() ? 0 : take_at_once(request, need)) return at;
    return span.error();
  }
  if (closed_.load()) return GrowError(is_closed());
  return finish(**span, request, need);
}

Engine::Need Engine::need_for(const Request& request, StreamIndex stream) const {
  const bool classed = request.bytes <= kClassMost && request.placement.room.is_zero();
  Need need{.bytes = classed ? kClassBytes[class_of(request.bytes)] : rounded_up(request.bytes, kQuantum),
            .stream = stream,
            .wait = request.wait};
  if (!request.placement.room.is_zero()) {
    need.kind = Need::Kind::kRoom;
    need.room = rounded_up(std::max(request.placement.room.count, need.bytes), unit_);
  } else if (request.bytes <= kSlotMost) {
    need.kind = Need::Kind::kSlab;
    need.bytes = kSlabBytes[class_of(request.bytes)];
  }
  return need;
}

Address Engine::take_at_once(const Request& request, const Need& need) {
  if (need.kind == Need::Kind::kRoom) return 0;
  if (need.kind == Need::Kind::kSlab) return take_slot(request, need.stream);
  if (const Address cached = take_cached(request)) return cached;
  Span* span = heap_.take(need.bytes, Cut::kSpan, need.stream);
  return span == nullptr ? 0 : hand_out(*span, request, need.stream);
}

Address Engine::finish(Span& span, const Request& request, const Need& need) {
  if (need.kind == Need::Kind::kSlab) {
    // If the stream was made to wait for another's work on the span, the slots that are not handed out now
    // are free for others only when it has come so far.
    const bool ordered = span.stream != kNoStream && span.stream != need.stream;
    const std::uint64_t epoch = ordered ? streams_.epoch(need.stream) : span.epoch;
    slab_bins_.add_slab(span, class_of(request.bytes), need.stream, epoch);
    if (ordered) streams_.freed(need.stream);
    map_.enter(span);
    return take_slot(request, need.stream);
  }
  if (need.kind == Need::Kind::kRoom) span.room_end = need.at + need.room;
  return hand_out(span, request, need.stream);
}

Address Engine::take_cached(const Request& request) {
  if (request.cache == nullptr || request.bytes > kClassMost) return 0;
  const Address cached = request.cache->take_locked(request.bytes, seconds_.load(std::memory_order_relaxed));
  if (cached != 0 && request.placement.tag.number != 0) tag_block(cached, request.placement.tag);
  return cached;
}

Address Engine::take_slot(const Request& request, StreamIndex stream) {
  const ClassIndex size_class = class_of(request.bytes);
  if (const Address cached = take_cached(request)) return cached;
  ThreadCache* cache = request.cache;
  std::vector<Block> blocks;
  const std::size_t most = 1 + (cache != nullptr ? cache->refill_count(size_class) : 0);
  if (slab_bins_.take(size_class, stream, most, blocks) == 0) return 0;
  const Block block = blocks.back();
  blocks.pop_back();
  if (!blocks.empty()) cache->refill(size_class, blocks.data(), blocks.size());
  ++counters_.slow[size_class];
  mark_used(*block.slot, request, stream);
  return block.address;
}

Address Engine::hand_out(Span& span, const Request& request, StreamIndex stream) {
  const bool classed = request.bytes <= kClassMost && span.room_end == 0;
  span.size_class = classed ? class_of(request.bytes) : kNoClass;
  span.slot_bytes = classed ? static_cast<std::uint32_t>(span.bytes) : 0;
  span.reciprocal = 0;
  span.slot_count = 1;
  span.slots = &span.own;
  span.requested = request.bytes;
  counters_.peak_used = std::max(counters_.peak_used, heap_.used_bytes());
  ++counters_.slow[span.size_class];
  mark_used(span.own, request, stream);
  map_.enter(span);
  return span.base;
}

void Engine::mark_used(Slot& slot, const Request& request, StreamIndex stream) {
  streams_.hold(stream);
  const BlockWord word = BlockWord::used(stream, request.placement.tag.number,
                                         request.cache != nullptr ? request.cache->number() : 0);
  slot.set(request.bytes <= BlockWord::kBytesMost ? word.with_bytes(request.bytes) : word);
  slot.born.store(seconds_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::uint64_t Engine::cache_budget() const {
  return std::clamp(extents_.committed().count / kCachePart, kLeastCache, kMostCache);
}

bool Engine::has_tag(Tag tag) const {
  const MutexLock lock(lock_);
  return tag.number <= tags_.size();
}

void Engine::tag_block(Address address, Tag tag) {
  Slot& slot = *slot_of(*map_.find(address), address);
  const BlockWord word = slot.get();
  slot.set(BlockWord::used(word.stream(), tag.number, word.cache()).with_bytes(word.bytes()));
}

// ---- Freeing ----

Result<Engine::Found> Engine::find(Address address, Bytes bytes) const {
  Span* span = map_.find(address);
  Slot* slot = span != nullptr ? slot_of(*span, address) : nullptr;
  if (slot == nullptr) {
    if (address < base_ || address - base_ >= addresses_.count) {
      return invalid(address, "is no address of this allocator");
    }
    return invalid(address, "is not where a block in use begins: it was freed already, or is inside of one");
  }
  const BlockWord word = slot->get();
  if (word.state() != BlockWord::kUsed) return invalid(address, "was freed already");
  const bool classed = span->size_class != kNoClass;
  const std::uint64_t requested = classed ? word.bytes() : span->requested;
  if (bytes != kUnknownSize && bytes.count != requested) {
    return invalid(address, "is a block of " + std::to_string(requested) + " bytes, not of " +
                                std::to_string(bytes.count));
  }
  return Found{span, slot, word, {requested}};
}

Result<void> Engine::deallocate(Address address, Bytes bytes, StreamHandle stream) {
  if (!is_usable()) return usable();
  ThreadCache* cache = Streams::is_legacy(stream) ? own_cache() : nullptr;
  if (Span* span = map_.find(address); span != nullptr && cache != nullptr && span->size_class != kNoClass) {
    Slot* slot = slot_of(*span, address);
    if (slot != nullptr && cache->put_any(*span, *slot, address, bytes.count)) return {};
  }
  const MutexLock lock(lock_);
  if (closed_.load()) return is_closed();
  auto found = find(address, bytes);
  if (!found) return found.error();
  const StreamIndex allocated_on = found->word.stream();
  auto index = order_of_free(stream, allocated_on);
  if (!index) return index.error();
  Span& span = *found->span;
  if (cache != nullptr) cache->use(*index, cache_budget());
  const bool recorded = found->word.has_recorded_streams();
  const bool cached = span.size_class != kNoClass && cache != nullptr && !recorded && !is_waited_for() &&
                      cache->ensure_capacity(span.size_class, flush_target()) &&
                      cache->put_locked(span, *found->slot, address, bytes.count);
  if (!cached) {
    // Another thread may free the same block on the fast path.
    std::uint64_t expected = found->word.bits();
    if (!found->slot->word.compare_exchange_strong(expected, 0)) return invalid(address, "was freed already");
    if (recorded) {
      free_recorded({address, found->slot}, *index);
    } else {
      free_block(span, {address, found->slot}, *index, streams_.epoch(*index));
    }
    streams_.freed(*index);
  }
  streams_.let_go(allocated_on);
  return {};
}

// The per-thread default stream of the thread that allocated the block is another one, on which only that
// thread can set a mark. The legacy default stream comes after the work of both. It needs no mark now, so it
// also serves a thread that is about to end, whose driver state may be gone.
Result<StreamIndex> Engine::order_of_free(StreamHandle stream, StreamIndex allocated_on) {
  if (!Streams::is_per_thread(stream)) return stream_of(stream);
  if (ThreadTable::is_ending()) return stream_of(nullptr);
  auto own = stream_of(stream);
  return !own || *own == allocated_on ? own : stream_of(nullptr);
}

void Engine::free_block(Span& span, const Block& block, StreamIndex stream, std::uint64_t epoch) {
  if (span.use == Span::Use::kSlab) {
    const bool idle = epoch < streams_.reached(stream);
    const bool whole = idle ? slab_bins_.put_idle(span, block) : slab_bins_.put(span, block, stream, epoch);
    if (whole) free_span(span, span.stream, span.epoch);
  } else {
    free_span(span, stream, epoch);
  }
}

void Engine::free_span(Span& span, StreamIndex stream, std::uint64_t epoch) {
  map_.remove(span);
  if (span.use == Span::Use::kSlab) slab_bins_.end_slab(span);
  span.own.set(BlockWord());
  const Address base = span.base;
  const Address end = span.end();
  const Address room_end = std::exchange(span.room_end, 0);
  const bool done = epoch < streams_.reached(stream);
  heap_.free(span, done ? kNoStream : stream, epoch);
  if (room_end != 0) extents_.release_room(base, end, room_end);
  wake_waiters();
}

ThreadCache::FlushTarget Engine::flush_target() {
  return [this](const Block& block) { free_flushed(block); };
}

void Engine::free_flushed(const Block& block) {
  const StreamIndex legacy = streams_.legacy();
  free_block(*map_.find(block.address), block, legacy, streams_.epoch(legacy));
}

}  // namespace gpumem::allocator
