#include "client/allocator/arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpumem::allocator {
namespace {

Error invalid(Address address, const std::string& what) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (; address != 0 || hex.empty(); address >>= 4) hex.insert(hex.begin(), kDigits[address & 15]);
  return {Code::kInvalidArgument, "0x" + hex + " " + what};
}

}  // namespace

Arena::Arena(Backing& backing, StreamPort& port, AddressMap& map, const std::atomic<std::uint32_t>& seconds)
    : map_(map),
      seconds_(seconds),
      base_(backing.base()),
      addresses_(backing.addresses()),
      limit_(backing.limit()),
      unit_(backing.granularity().count),
      heap_(unit_),
      extents_(backing, heap_),
      streams_(port, [this] { retire_idle_streams(); }),
      caches_([this](const Block& block) {
        const StreamIndex legacy = streams_.legacy();
        free_block(*map_.find(block.address), block, legacy, streams_.epoch(legacy));
        streams_.freed(legacy);
      }) {}

// ---- Handing out ----

Need Arena::need_for(const BlockRequest& request, std::uint64_t unit) {
  const bool classed = request.bytes <= kClassMost && request.room == 0;
  Need need{.bytes = classed ? kClassBytes[class_of(request.bytes)] : rounded_up(request.bytes, kQuantum)};
  if (request.room != 0) {
    need.kind = Need::Kind::kRoom;
    need.room = rounded_up(std::max(request.room, need.bytes), unit);
  } else if (request.bytes <= kSlotMost) {
    need.kind = Need::Kind::kSlab;
    need.bytes = kSlabBytes[class_of(request.bytes)];
  }
  return need;
}

Address Arena::take_at_once(const BlockRequest& request, const Need& need) {
  if (need.kind == Need::Kind::kRoom) return 0;
  if (request.bytes <= kClassMost) {
    if (request.cache != nullptr) caches_.use(*request.cache, need.stream, extents_.committed().count);
    if (const Address cached = take_cached(request)) return cached;
    if (const Address of_batch = take_batch(request, need)) return of_batch;
    if (need.kind == Need::Kind::kSlab) return 0;
  }
  Span* span = heap_.take(need.bytes, Cut::kSpan, need.stream);
  return span == nullptr ? 0 : hand_out(*span, request, need.stream);
}

Address Arena::take_cached(const BlockRequest& request) {
  if (request.cache == nullptr) return 0;
  const Address cached = request.cache->take_locked(request.bytes, seconds_.load(std::memory_order_relaxed));
  if (cached != 0 && request.tag.number != 0) tag_block(cached, request.tag);
  return cached;
}

Address Arena::take_batch(const BlockRequest& request, const Need& need) {
  const ClassIndex size_class = class_of(request.bytes);
  batch_.clear();
  std::size_t most = 1;
  if (request.cache != nullptr && !caches_.are_stopped()) {
    most += request.cache->refill_count(size_class);
    caches_.take(size_class, most, batch_);
  }
  if (batch_.empty() && need.kind == Need::Kind::kSlab) {
    slab_bins_.take(size_class, need.stream, most, batch_);
  }
  if (batch_.empty()) return 0;
  const Block block = batch_.back();
  batch_.pop_back();
  if (request.cache != nullptr && !batch_.empty())
    request.cache->refill(size_class, batch_.data(), batch_.size());
  ++counters_.slow[size_class];
  mark_used(*block.slot, request, need.stream);
  return block.address;
}

Address Arena::finish(Span& span, const BlockRequest& request, const Need& need) {
  if (need.kind == Need::Kind::kSlab) {
    // If the stream was made to wait for another's work on the span, the slots that are not handed out now
    // are free for others only when it has come so far.
    const bool ordered = span.stream != kNoStream && span.stream != need.stream;
    const std::uint64_t epoch = ordered ? streams_.epoch(need.stream) : span.epoch;
    slab_bins_.add_slab(span, class_of(request.bytes), need.stream, epoch);
    if (ordered) streams_.freed(need.stream);
    map_.enter(span);
    if (const Address cached = take_cached(request)) return cached;
    return take_batch(request, need);
  }
  if (need.kind == Need::Kind::kRoom) span.room_end = need.at + need.room;
  return hand_out(span, request, need.stream);
}

Address Arena::hand_out(Span& span, const BlockRequest& request, StreamIndex stream) {
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

void Arena::mark_used(Slot& slot, const BlockRequest& request, StreamIndex stream) {
  streams_.hold(stream);
  const BlockWord word =
      BlockWord::used(stream, request.tag.number, request.cache != nullptr ? request.cache->number() : 0);
  slot.set(request.bytes <= BlockWord::kBytesMost ? word.with_bytes(request.bytes) : word);
  slot.born.store(seconds_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void Arena::tag_block(Address address, Tag tag) {
  Slot& slot = *map_.find(address)->slot_of(address);
  const BlockWord word = slot.get();
  slot.set(BlockWord::used(word.stream(), tag.number, word.cache()).with_bytes(word.bytes()));
}

// ---- Freeing ----

Result<Arena::Found> Arena::find(Address address, Bytes bytes) const {
  Span* span = map_.find(address);
  Slot* slot = span != nullptr ? span->slot_of(address) : nullptr;
  if (slot == nullptr) {
    if (address < base_ || address - base_ >= addresses_.count) {
      return invalid(address, "is no address of this allocator");
    }
    return invalid(address, "is not where a block in use begins: it was freed already, or is inside of one");
  }
  const BlockWord word = slot->get();
  if (word.state() != BlockWord::kUsed) return invalid(address, "was freed already");
  const std::uint64_t requested = span->size_class != kNoClass ? word.bytes() : span->requested;
  if (bytes != kUnknownSize && bytes.count != requested) {
    return invalid(address, "is a block of " + std::to_string(requested) + " bytes, not of " +
                                std::to_string(bytes.count));
  }
  return Found{span, slot, word, {requested}};
}

Result<void> Arena::free(const Found& found, Address address, StreamIndex stream, ThreadCache* cache) {
  const auto& [span, slot, word, bytes] = found;
  const bool recorded = word.has_recorded_streams();
  const bool classed = span->size_class != kNoClass;
  if (cache != nullptr && classed) caches_.use(*cache, stream, extents_.committed().count);
  const bool cached = classed && cache != nullptr && !recorded && !caches_.are_stopped() &&
                      caches_.make_space(*cache, span->size_class) &&
                      cache->put_locked(*span, *slot, address, bytes.count);
  if (!cached) {
    // Another thread may free the same block on the fast path, if it has a class.
    std::uint64_t expected = word.bits();
    if (!classed) {
      slot->set(BlockWord());
    } else if (!slot->word.compare_exchange_strong(expected, 0)) {
      return invalid(address, "was freed already");
    }
    const Block block{address, slot};
    if (!recorded || !recorded_.hold(block, stream)) free_block(*span, block, stream, streams_.epoch(stream));
    streams_.freed(stream);
  }
  streams_.let_go(word.stream());
  return {};
}

Result<void> Arena::record(const Found& found, Address address, StreamIndex stream) {
  std::uint64_t expected = found.word.bits();
  if (!found.slot->word.compare_exchange_strong(expected, found.word.with_recorded_streams().bits()))
    return Error{Code::kInvalidArgument, "the block is freed at this moment"};
  recorded_.record(address, stream);
  return {};
}

void Arena::free_block(Span& span, const Block& block, StreamIndex stream, std::uint64_t epoch) {
  if (span.use == Span::Use::kSlab) {
    const bool idle = epoch < streams_.reached(stream);
    const bool whole = idle ? slab_bins_.put_idle(span, block) : slab_bins_.put(span, block, stream, epoch);
    if (whole) free_span(span, span.stream, span.epoch);
  } else {
    free_span(span, stream, epoch);
  }
}

void Arena::free_span(Span& span, StreamIndex stream, std::uint64_t epoch) {
  map_.remove(span);
  if (span.use == Span::Use::kSlab) slab_bins_.end_slab(span);
  span.own.set(BlockWord());
  const Address base = span.base;
  const Address end = span.end();
  const Address room_end = std::exchange(span.room_end, 0);
  const bool done = epoch < streams_.reached(stream);
  heap_.free(span, done ? kNoStream : stream, epoch);
  if (room_end != 0) extents_.release_room(base, end, room_end);
  queue_.wake(free_bytes());
}

// Memory inside a block's room cannot be used by other blocks, so the room is released too.
void Arena::shrink(Span& span, std::uint64_t to, StreamIndex stream) {
  const Address end = span.end();
  to = std::max(to, kGranule);  // no other span may begin where this one does
  if (to >= span.bytes) return;
  heap_.narrow(span, to, stream, streams_.epoch(stream));
  if (span.room_end != 0) extents_.release_room(span.base, end, std::exchange(span.room_end, 0));
  streams_.freed(stream);
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
  heap_.settle(stream, epoch);
  for (Span* slab : slab_bins_.settle(stream, epoch)) free_span(*slab, slab->stream, slab->epoch);
  for (const auto& held : recorded_.take_idle()) {
    free_block(*map_.find(held.block.address), held.block, held.freed.stream, held.freed.epoch);
    recorded_.let_go(held);
  }
  queue_.wake(free_bytes());
}

// No work of these streams is pending, so their slabs can serve any stream.
void Arena::retire_idle_streams() {
  poll();
  std::vector<bool> idle(streams_.count());
  for (std::size_t i = 1; i < idle.size(); ++i) idle[i] = streams_.is_idle(static_cast<StreamIndex>(i));
  heap_.each_slab([&](Span& slab) {
    if (idle[slab.stream]) slab_bins_.clear_stream(slab);
  });
  for (std::size_t i = 1; i < idle.size(); ++i) {
    if (idle[i]) streams_.retire(static_cast<StreamIndex>(i));
  }
}

std::vector<Streams::Awaited> Arena::awaited() {
  std::vector<Streams::Awaited> marks;
  for (const StreamIndex stream : streams_.pending()) {
    if (auto mark = streams_.await(stream)) marks.push_back(std::move(*mark));
  }
  return marks;
}

void Arena::add_extents(std::vector<Extent> lent) {
  extents_.add(std::move(lent));
  counters_.peak_committed = std::max(counters_.peak_committed, extents_.committed());
}

}  // namespace gpumem::allocator
