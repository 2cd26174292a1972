#include <algorithm>

#include "base/check.h"
#include "client/allocator/arena.h"

// From a need to a span.

namespace gpumem::allocator {

Result<Span*, GrowError> Arena::find_span(const Need& need, ThreadCache* cache) {
  Span* span = take_for(need);
  if (span == nullptr) {
    caches_.flush_batches();
    poll();
    if (need.kind == Need::Kind::kAfter &&
        !extents_.can_make_span_after(*need.block, need.bytes, need.stream)) {
      return GrowError(
          {Code::kAborted, "something else lies behind the block; give blocks that are to grow room"});
    }
    span = take_for(need);
  }
  if (span == nullptr) span = take_from_other_streams(need);
  if (span == nullptr) {
    std::uint64_t missing = missing_for(need);
    if (missing != 0 && cache != nullptr && cache->bytes() != 0) {
      caches_.flush(*cache);
      poll();
      span = take_for(need);
      missing = span == nullptr ? missing_for(need) : 0;
    }
    if (span == nullptr && missing == 0) {
      if (auto made = make_span_for(need); !made) return GrowError(made.error());
      span = take_for(need);
      GPUMEM_CHECK(span != nullptr, "what was made can be taken");
    }
  }
  counters_.peak_used = std::max(counters_.peak_used, heap_.used_bytes());
  return span;
}

Span* Arena::take_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kSpan: return heap_.take(need.bytes, Cut::kSpan, need.stream);
    case Need::Kind::kSlab: return heap_.take(need.bytes, Cut::kSlab, need.stream);
    case Need::Kind::kAfter: return take_after(need);
    case Need::Kind::kRoom: break;
  }
  Span* span = heap_.beginning_at(need.at);
  return span == nullptr ? nullptr : heap_.take_whole(*span);
}

Span* Arena::take_after(const Need& need) {
  const Span* after = need.block->after;
  if (after == nullptr || (after->stream != kNoStream && after->stream != need.stream)) return nullptr;
  if (after->bytes < need.bytes) return nullptr;
  const bool all = need.block->room_end != 0;  // no other block may lie in the room
  return heap_.widen(*need.block, all ? after->bytes : need.bytes) ? need.block : nullptr;
}

// Free spans of other streams, ordered behind the work that may still use them: first one span that is large
// enough, else all of them, which may merge with their neighbours into a span that is.
Span* Arena::take_from_other_streams(const Need& need) {
  if (need.kind != Need::Kind::kSpan && need.kind != Need::Kind::kSlab) return nullptr;
  const Cut cut = need.kind == Need::Kind::kSlab ? Cut::kSlab : Cut::kSpan;
  const auto streams = heap_.streams();
  for (const StreamIndex other : streams) {
    if (other == need.stream) continue;
    Span* fits = heap_.fit(need.bytes, cut, other);
    if (fits == nullptr || !streams_.order(need.stream, other, fits->epoch)) continue;
    return heap_.take_of(*fits, need.bytes, cut);
  }
  if (heap_.free_bytes() < need.bytes) return nullptr;
  Span* found = nullptr;
  bool adopted = false;
  for (const StreamIndex other : streams) {
    if (other == need.stream || !streams_.order(need.stream, other, streams_.last_free(other))) continue;
    heap_.adopt(other, need.stream, streams_.epoch(need.stream));
    adopted = true;
    if (found = take_for(need); found != nullptr) break;
  }
  if (adopted) streams_.freed(need.stream);
  return found;
}

// A whole unit has space for a slab at any alignment.
std::uint64_t Arena::missing_for(const Need& need) const {
  switch (need.kind) {
    case Need::Kind::kSpan: return extents_.missing_for(need.bytes, need.stream);
    case Need::Kind::kSlab: return extents_.missing_for(unit_, need.stream);
    case Need::Kind::kAfter: return extents_.missing_after(*need.block, need.bytes, need.stream);
    case Need::Kind::kRoom: break;
  }
  return extents_.missing_at(need.bytes, need.room);
}

Result<void> Arena::make_span_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kSpan: return extents_.make_span(need.bytes, need.stream);
    case Need::Kind::kSlab: return extents_.make_span(unit_, need.stream);
    case Need::Kind::kAfter: return extents_.make_span_after(*need.block, need.bytes, need.stream);
    case Need::Kind::kRoom: break;
  }
  return extents_.make_span_at(need.at, need.bytes, need.room);
}

}  // namespace gpumem::allocator
