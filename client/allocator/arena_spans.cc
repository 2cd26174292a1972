#include <algorithm>
#include <utility>

#include "base/check.h"
#include "client/allocator/arena.h"

// From a need to a span.

namespace gpumem::allocator {
namespace {

Error no_addresses(const Need& need) {
  if (need.kind == Need::Kind::kAfter) {
    return {Code::kAborted, "something else lies behind the block; give blocks that are to grow room"};
  }
  return {Code::kResourceExhausted, "no range of addresses of " + to_string(Bytes{need.bytes}) +
                                        " is left; open the allocator with a higher limit"};
}

}  // namespace

Result<Span*, GrowError> Arena::find_span(const Need& need, ThreadCache* cache) {
  Span* span = take_for(need);
  if (span == nullptr) {
    caches_.flush_batches();
    poll();
    span = take_for(need);
  }
  if (span == nullptr) span = take_from_other_streams(need);
  if (span == nullptr) {
    ExtentHeap::Plan plan = plan_for(need);
    if (plan.missing != 0 && cache != nullptr && cache->bytes() != 0) {
      caches_.flush(*cache);
      poll();
      span = take_for(need);
      if (span == nullptr) plan = plan_for(need);
    }
    if (span == nullptr && plan.missing == 0) {
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
ExtentHeap::Plan Arena::plan_for(const Need& need) {
  switch (need.kind) {
    case Need::Kind::kSpan: return extents_.plan_span(need.bytes, need.stream);
    case Need::Kind::kSlab: return extents_.plan_span(unit_, need.stream);
    case Need::Kind::kRoom: return extents_.plan_at(need.at, need.bytes, need.room);
    case Need::Kind::kAfter: break;
  }
  Span* after = need.block->after;
  if (after != nullptr && after->is_free()) heap_.open_unit(*after);  // so that what is mapped merges with it
  return extents_.plan_after(*need.block, need.bytes, need.stream);
}

}  // namespace gpumem::allocator
