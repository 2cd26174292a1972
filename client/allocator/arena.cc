#include "client/allocator/arena.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"

namespace gpumem::allocator {
namespace {

Error invalid(Address address, const std::string& what) {
  std::array<char, 16> hex;
  char* const end = std::to_chars(hex.begin(), hex.end(), address, 16).ptr;
  return {Code::kInvalidArgument, "0x" + std::string(hex.data(), end) + " " + what};
}

Error no_addresses(const Need& need) {
  if (need.kind == Need::Kind::kAfter) {
    return {Code::kAborted, "something else lies behind the block; give blocks that are to grow room"};
  }
  return {Code::kResourceExhausted, "no range of addresses of " + to_string(Bytes{need.bytes}) +
                                        " is left; open the allocator with a higher limit"};
}

}  // namespace

Arena::Arena(Backing& backing, StreamPort& port, AddressMap& map, const std::atomic<std::uint32_t>& seconds)
    : map_(map),
      seconds_(seconds),
      properties_(backing.properties()),
      unit_(properties_.granularity.count),
      heap_(properties_.base, properties_.addresses, unit_),
      extents_(backing, heap_),
      streams_(port, [this] { retire_idle_streams(); }),
      caches_(*this) {}

// ---- Handing out ----

Result<Need> Arena::need_for(std::uint64_t bytes, const Placement& placement) {
  Need need{.requested = bytes, .bytes = rounded_up(bytes, kQuantum), .tag = placement.tag};
  if (!placement.room.is_zero()) {
    need.kind = Need::Kind::kRoom;
    need.beside = heap_.reserve(rounded_up(std::max(placement.room.count, need.bytes), unit_));
    if (need.beside == nullptr) {
      return Error{Code::kResourceExhausted,
                   "no " + to_string(placement.room) + " of addresses are left for the block's room"};
    }
  } else if (bytes <= kSlotMost) {
    need.cut = Cut::kSlab;
    need.bytes = kSlabBytes[class_of(bytes)];
  } else if (bytes <= kClassMost) {
    need.bytes = kClassBytes[class_of(bytes)];
  }
  return need;
}

Address Arena::take_at_once(const Need& need) {
  if (need.kind != Need::Kind::kSpan) return 0;
  CachedBlocks* const own = cached_for(need);
  if (own != nullptr && need.requested > kClassMost) own->expect_large(need.requested, *this);
  if (const Address cached = take_cached(need, own)) return cached;
  if (need.requested <= kClassMost) {
    if (const Address of_batch = take_batch(need, own)) return of_batch;
    if (need.cut == Cut::kSlab) return 0;
  }
  Span* span = heap_.take(need.bytes, Cut::kSpan, need.stream);
  return span == nullptr ? 0 : hand_out(*span, need, own);
}

CachedBlocks* Arena::cached_for(const Need& need) {
  if (need.kind != Need::Kind::kSpan || need.cache == nullptr) return nullptr;
  return caches_.use(*need.cache, need.stream, need.stream == streams_.legacy(), extents_.committed().count);
}

Address Arena::take_cached(const Need& need, CachedBlocks* own) {
  if (own == nullptr) return 0;
  const std::uint32_t now = seconds_.load(std::memory_order_relaxed);
  const Address cached = ThreadCache::take_locked(*own, need.requested, now);
  if (cached != 0 && need.tag.number != 0) write_used(*map_.find(cached)->slot_of(cached), need, own);
  return cached;
}

// A cached block holds its stream, as a block in use does.
Address Arena::take_batch(const Need& need, CachedBlocks* own) {
  const ClassIndex size_class = class_of(need.requested);
  batch_.clear();
  std::size_t most = 1;
  if (own != nullptr && !caches_.are_stopped()) {
    most += need.cache->refill_count(*own, size_class);
    if (need.stream == streams_.legacy()) caches_.take(size_class, most, batch_);
  }
  if (batch_.empty() && need.cut == Cut::kSlab) {
    slab_bins_.take(size_class, need.stream, most, batch_);
  }
  if (batch_.empty()) return 0;
  const Block block = batch_.back();
  batch_.pop_back();
  if (own != nullptr && !batch_.empty()) {
    caches_.refill(*need.cache, *own, size_class, batch_);
    for (std::size_t i = 0; i < batch_.size(); ++i) streams_.hold(need.stream);
  }
  ++counters_.slow[size_class];
  mark_used(*block.slot, need, own);
  return block.address;
}

Address Arena::finish(Span& span, const Need& need) {
  if (need.cut == Cut::kSlab) {
    // If the stream was made to wait for another's work on the span, the slots that are not handed out now
    // are free for others only when it has come so far.
    const bool ordered = span.stream != kNoStream && span.stream != need.stream;
    const std::uint64_t epoch = ordered ? streams_.epoch(need.stream) : span.epoch;
    slab_bins_.add_slab(span, class_of(need.requested), need.stream, epoch);
    if (ordered) streams_.freed(need.stream);
    map_.enter(span);
    return take_at_once(need);
  }
  return hand_out(span, need, cached_for(need));
}

Address Arena::hand_out(Span& span, const Need& need, const CachedBlocks* own) {
  span.has_room = need.kind == Need::Kind::kRoom;
  span.size_class = span.has_room ? kNoClass : class_of(need.requested);
  span.slot_bytes = span.size_class == kNoClass ? 0 : static_cast<std::uint32_t>(span.bytes);
  span.reciprocal = 0;
  span.slot_count = 1;
  span.slots = &span.own;
  span.requested = need.requested;
  counters_.peak_used = std::max(counters_.peak_used, heap_.used_bytes());
  ++counters_.slow[span.size_class];
  mark_used(span.own, need, own);
  map_.enter(span);
  return span.base;
}

void Arena::mark_used(Slot& slot, const Need& need, const CachedBlocks* own) {
  streams_.hold(need.stream);
  write_used(slot, need, own);
}

void Arena::write_used(Slot& slot, const Need& need, const CachedBlocks* own) {
  const CacheNumber number = own != nullptr ? need.cache->number() : CacheNumber{0};
  const BlockWord word = BlockWord::used(need.stream, need.tag.number, number);
  slot.set(need.requested <= BlockWord::kBytesMost ? word.with_bytes(need.requested) : word);
  slot.born.store(seconds_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

// ---- From a need to a span ----

Result<Span*, GrowError> Arena::find_span(const Need& need) {
  const auto ask_again = [&] {
    poll();
    return take_for(need);
  };
  Span* span = take_for(need);
  if (span == nullptr) span = ask_again();
  if (span == nullptr) {  // later, because the next frees then need new marks
    caches_.flush(need.cache);
    span = ask_again();
  }
  if (span == nullptr) span = take_from_other_streams(need);
  if (span == nullptr && caches_.flush_large()) {  // of other threads
    span = ask_again();
    if (span == nullptr) span = take_from_other_streams(need);
  }
  if (span == nullptr) {
    ExtentHeap::Plan plan = plan_for(need);
    if (plan.missing == 0) {
      if (plan.at == 0) return GrowError(no_addresses(need));
      if (auto made = extents_.make(std::move(plan)); !made) return GrowError(made.error());
      span = take_for(need);
      GPUMEM_CHECK(span != nullptr, "what was made can be taken");
    }
  }
  counters_.peak_used = std::max(counters_.peak_used, heap_.used_bytes());
  return span;
}

Span* Arena::take_for(const Need& need) {
  if (need.kind == Need::Kind::kSpan) return heap_.take(need.bytes, need.cut, need.stream);
  Span* after = need.beside->after;
  if (need.beside->is_unused() || !after->is_free() || after->bytes < need.bytes) return nullptr;
  if (after->stream != kNoStream && after->stream != need.stream) return nullptr;
  // A block with room takes all of what was mapped for it: no other block may lie there.
  if (need.kind == Need::Kind::kRoom) return heap_.take_of(*after, after->bytes, Cut::kSpan);
  heap_.widen(*need.beside, need.beside->has_room ? after->bytes : need.bytes);
  return need.beside;
}

// Free spans of other streams, ordered behind the work that may still use them: first one span that is large
// enough, else all of them, which may merge with their neighbours into a span that is.
Span* Arena::take_from_other_streams(const Need& need) {
  if (need.kind != Need::Kind::kSpan) return nullptr;
  const auto streams = heap_.free_spans().streams();
  for (const StreamIndex other : streams) {
    if (other == need.stream) continue;
    Span* fits = heap_.free_spans().fit(need.bytes, need.cut, other);
    if (fits == nullptr || !streams_.order(need.stream, other, fits->epoch)) continue;
    return heap_.take_of(*fits, need.bytes, need.cut);
  }
  if (heap_.free_bytes() < need.bytes) return nullptr;
  Span* found = nullptr;
  bool adopted = false;
  for (const StreamIndex other : streams) {
    const std::uint64_t last = streams_.last_free(other);
    if (other == need.stream || !streams_.order(need.stream, other, last)) continue;
    heap_.pass_on(other, last + 1, need.stream, streams_.epoch(need.stream));
    adopted = true;
    if (found = take_for(need); found != nullptr) break;
  }
  if (adopted) streams_.freed(need.stream);
  return found;
}

// A whole unit has space for a slab at any alignment.
ExtentHeap::Plan Arena::plan_for(const Need& need) {
  if (need.kind != Need::Kind::kSpan) return extents_.plan_after(*need.beside, need.bytes, need.stream);
  return extents_.plan_span(need.cut == Cut::kSlab ? unit_ : need.bytes, need.stream);
}

// ---- Freeing ----

Result<Arena::Found> Arena::find(Address address, Bytes bytes) const {
  Span* span = map_.find(address);
  Slot* slot = span != nullptr ? span->slot_of(address) : nullptr;
  if (slot == nullptr) {
    if (address - properties_.base >= properties_.addresses.count)
      return invalid(address, "is no address of this allocator");
    return invalid(address, "is not where a block in use begins: it was freed already, or is inside of one");
  }
  const BlockWord word = slot->get();
  if (word.state() != BlockWord::kUsed) return invalid(address, "was freed already");
  const std::uint64_t requested = span->size_class != kNoClass ? word.bytes() : span->requested;
  if (bytes != kUnknownSize && bytes.count != requested) {
    return invalid(address, "is a block of " + std::to_string(requested) + " bytes, not of " +
                                std::to_string(bytes.count));
  }
  return Found{span, {address, slot}, word, {requested}};
}

Result<void> Arena::free(const Found& found, StreamIndex stream, ThreadCache* own) {
  const auto& [span, block, word, bytes] = found;
  const auto& [address, slot] = block;
  const bool recorded = word.has_recorded_streams();
  if (own == nullptr || recorded || caches_.are_stopped() || !cache(found, stream, *own)) {
    // Another thread may free the same block on the fast path.
    std::uint64_t expected = word.bits();
    if (!slot->word.compare_exchange_strong(expected, 0)) return invalid(address, "was freed already");
    if (!recorded || !recorded_.hold(block, stream)) free_block(*span, block, stream, streams_.epoch(stream));
    streams_.freed(stream);
  }
  streams_.let_go(word.stream());
  return {};
}

// Surplus blocks of a named stream go to the heap at once, behind one mark for all of them.
bool Arena::cache(const Found& found, StreamIndex stream, ThreadCache& own) {
  const bool is_legacy = stream == streams_.legacy();
  CachedBlocks* blocks = caches_.use(own, stream, is_legacy, extents_.committed().count);
  if (blocks == nullptr) {
    const StreamPort::Id id = streams_.cached_id(stream);
    if (id != StreamPort::Id{}) blocks = caches_.add_stream(own, stream, id);
    if (blocks == nullptr) return false;
    streams_.hold(stream);
  }
  if (!blocks->can_claim(*found.span, found.word, found.bytes.count, true)) return false;
  batch_.clear();
  const ClassIndex size_class = found.span->size_class;
  if (!caches_.make_space(own, *blocks, size_class, batch_)) return false;
  for (const Block& block : batch_) {
    free_block(*map_.find(block.address), block, stream, streams_.epoch(stream));
    streams_.let_go(stream);
  }
  if (!batch_.empty()) streams_.freed(stream);
  if (!streams_.is_marked_late(stream) && !mark_cached(*blocks)) return false;
  if (!blocks->push(*found.span, *found.block.slot, found.block.address, found.bytes.count, true))
    return false;
  streams_.hold(stream);
  return true;
}

// One of the two marks is behind the blocks. The next free moves the other one.
bool Arena::mark_cached(CachedBlocks& blocks) {
  if (blocks.has_spare() && !streams_.renew(blocks)) return false;
  for (int i = 0; i < 2 && !blocks.has_spare(); ++i) {
    const auto mark = streams_.set_apart(blocks.stream());
    if (!mark) return false;
    blocks.add(*mark);
  }
  return true;
}

// Of a stream that is not marked late, the mark that was handed over before is behind the block, and those of
// the heap are.
void Arena::free_cached(StreamIndex stream, const Block& block) {
  const StreamIndex of = stream == kNoStream ? streams_.legacy() : stream;
  const bool is_late = streams_.is_marked_late(of);
  free_block(*map_.find(block.address), block, of, is_late ? streams_.epoch(of) : streams_.last_free(of));
  if (is_late) streams_.freed(of);
  streams_.let_go(of);
}

void Arena::dismiss(StreamIndex stream, const std::array<StreamPort::Mark, 2>& marks) {
  for (const StreamPort::Mark mark : marks) streams_.drop(mark);
  streams_.let_go(stream);
}

Result<void> Arena::release_stream(StreamHandle stream) {
  const StreamIndex known = Streams::is_default(stream) ? kNoStream : streams_.known(stream);
  if (known != kNoStream) caches_.dismiss(known);
  return streams_.forget(stream);
}

void Arena::mark_streams() {
  caches_.dismiss(kNoStream);
  (void)streams_.awaited();
}

Result<void> Arena::record(const Found& found, StreamIndex stream) {
  std::uint64_t expected = found.word.bits();
  if (!found.block.slot->word.compare_exchange_strong(expected, found.word.with_recorded_streams().bits()))
    return Error{Code::kInvalidArgument, "the block is freed at this moment"};
  recorded_.record(found.block.address, stream);
  return {};
}

void Arena::free_block(Span& span, const Block& block, StreamIndex stream, std::uint64_t epoch) {
  if (span.use != Span::Use::kSlab) return free_span(span, stream, epoch);
  const bool idle = epoch < streams_.reached(stream);
  const bool whole = slab_bins_.put(span, block, idle ? kNoStream : stream, epoch);
  if (whole) return free_span(span, span.stream, span.epoch);
  queue_.wake(0, span.size_class, idle ? span.stream : stream);
}

void Arena::free_span(Span& span, StreamIndex stream, std::uint64_t epoch) {
  map_.remove(span);
  if (span.use == Span::Use::kSlab) slab_bins_.end_slab(span);
  span.own.set(BlockWord());
  if (span.has_room) heap_.release_room(*span.before);
  const bool done = epoch < streams_.reached(stream);
  heap_.free(span, done ? kNoStream : stream, epoch);
  queue_.wake(free_bytes());
}

// Memory inside a block's room cannot be used by other blocks, so the room is released too. What recorded
// streams use stays whole.
void Arena::resize(Span& span, std::uint64_t to, StreamIndex stream) {
  const BlockWord word = span.own.get();
  const std::uint64_t takes = std::max(rounded_up(to, kQuantum), kGranule);  // no other span may begin here
  if (takes < span.bytes && to < span.requested && !word.has_recorded_streams()) {
    if (span.has_room) heap_.release_room(*span.before);
    heap_.narrow(span, takes, stream, streams_.epoch(stream));
    streams_.freed(stream);
    queue_.wake(free_bytes());
  }
  span.requested = to;
  span.size_class = kNoClass;  // its size is no longer that of a class
  span.own.set(word.without_bytes());
}

// ---- Work that the device has finished ----

void Arena::poll() {
  for (const StreamIndex stream : streams_.pending()) {
    if (const auto epoch = streams_.poll(stream)) settle(stream, *epoch);
  }
}

void Arena::settle(StreamIndex stream, std::uint64_t epoch) {
  streams_.note_reached(stream, epoch);
  extents_.settle(stream, epoch);
  heap_.pass_on(stream, epoch, kNoStream, 0);
  for (Span* slab : slab_bins_.settle(stream, epoch)) free_span(*slab, slab->stream, slab->epoch);
  recorded_.free_idle([this](const Block& block, StreamIndex freed_on, std::uint64_t freed_in) {
    free_block(*map_.find(block.address), block, freed_on, freed_in);
  });
  queue_.wake(free_bytes());
}

// No work of these streams is pending, so their slabs can serve any stream. A place in a thread's cache would
// hold its stream, even without blocks.
void Arena::retire_idle_streams() {
  caches_.dismiss(kNoStream);
  poll();
  for (Span& span : heap_.spans()) {
    if (span.use == Span::Use::kSlab && streams_.is_idle(span.stream)) slab_bins_.clear_stream(span);
  }
  streams_.retire_idle();
}

void Arena::add_extents(std::vector<Extent> lent) {
  extents_.add(std::move(lent));
  counters_.peak_committed = std::max(counters_.peak_committed, extents_.committed());
}

}  // namespace gpumem::allocator
