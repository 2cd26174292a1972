#include "client/allocator/heap.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::allocator {
namespace {

// How many of the best-fitting spans are compared for a slab. The lowest of them is taken, so that slabs
// gather at low addresses.
constexpr int kLooks = 4;

}  // namespace

Span* FreeSpans::fit(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  FreeSet& set = of_stream(stream);
  auto at = set.lower_bound(bytes, FitsBytes());
  if (cut == Cut::kSpan) return at == set.end() ? nullptr : &*at;
  Span* lowest = nullptr;
  for (int looks = 0; at != set.end() && (looks < kLooks || lowest == nullptr); ++at, ++looks) {
    if (place(*at, bytes, cut) != 0 && (lowest == nullptr || at->base < lowest->base)) lowest = &*at;
  }
  return lowest;
}

std::vector<Span*> FreeSpans::all_of(StreamIndex stream) {
  std::vector<Span*> all;
  for (Span& span : of_stream(stream)) all.push_back(&span);
  std::ranges::sort(all, {}, [](const Span* span) { return span->base; });
  return all;
}

std::vector<StreamIndex> FreeSpans::streams() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < sets_.size(); ++i) {
    if (!sets_[i].empty()) found.push_back(static_cast<StreamIndex>(i));
  }
  return found;
}

// A reserved span of no bytes at either end, so that each span has neighbours.
Heap::Heap(Address base, Bytes addresses, std::uint64_t unit) : unit_(unit), free_(unit) {
  Span& gap = make(base, addresses.count, Span::Use::kGap);
  link(make(base, 0, Span::Use::kReserved), gap);
  link(gap, make(gap.end(), 0, Span::Use::kReserved));
  free_.insert(gap);
}

// ---- Mapping ----

void Heap::add(Span& into, Address at, std::uint64_t bytes, StreamIndex stream, std::uint64_t epoch) {
  Span& span = carve(into, at, bytes);
  span.use = Span::Use::kFree;
  free_bytes_ += bytes;
  free(span, stream, epoch);
}

Span& Heap::cut(Span& span, Address from, std::uint64_t bytes) {
  GPUMEM_CHECK(span.is_free() && span.base <= from && from + bytes <= span.end(),
               "only free memory is unmapped");
  Span& out = carve(span, from, bytes);
  free_bytes_ -= out.bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  out.use = Span::Use::kReserved;
  return out;
}

Span& Heap::gap_around(Address at) {
  return *std::ranges::find_if(free_.gaps(),
                               [at](const Span& gap) { return gap.base <= at && at < gap.end(); });
}

// At the end of the largest gap, because blocks without room grow from the front.
Span* Heap::reserve(std::uint64_t bytes) {
  const std::uint64_t kept = bytes + 2 * unit_;
  FreeSet& gaps = free_.gaps();
  if (gaps.empty() || gaps.rbegin()->bytes < kept + unit_) return nullptr;
  Span& gap = *gaps.rbegin();
  Span& reserved = carve(gap, gap.end() - kept, kept);
  reserved.use = Span::Use::kReserved;
  split(reserved, unit_);
  return &reserved;
}

void Heap::release(Span& reserved) {
  reserved.use = Span::Use::kGap;
  Span* whole = &reserved;
  if (whole->before->is_gap()) {
    whole = whole->before;
    free_.remove(*whole);
    join(*whole, reserved);
  }
  if (whole->after->is_gap()) {
    free_.remove(*whole->after);
    join(*whole, *whole->after);
  }
  free_.insert(*whole);
}

void Heap::release_room(Span& reserved) {
  Span& after = *reserved.after;
  after.has_room = false;
  release(after.is_in_use() ? *after.after : after);
  release(reserved);
}

// ---- Taking ----

Span* Heap::take(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  Span* found = free_.fit(bytes, cut, kNoStream);
  if (stream != kNoStream) {
    Span* own = free_.fit(bytes, cut, stream);
    if (found == nullptr || (own != nullptr && *own < *found)) found = own;
  }
  return found == nullptr ? nullptr : take_of(*found, bytes, cut);
}

Span& Heap::carve(Span& span, Address from, std::uint64_t bytes) {
  Span* out = &span;
  free_.remove(span);
  if (from > span.base) {
    out = &split(span, from - span.base);
    free_.insert(span);
  }
  if (bytes < out->bytes) free_.insert(split(*out, bytes));
  return *out;
}

Span* Heap::use(Span& span, Address from, std::uint64_t bytes) {
  Span& used = carve(span, from, bytes);
  free_bytes_ -= bytes;
  used_bytes_ += bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  used.use = Span::Use::kBlock;
  return &used;
}

// ---- Freeing ----

void Heap::free(Span& span, StreamIndex stream, std::uint64_t epoch) {
  if (!span.is_free()) {
    used_bytes_ -= span.bytes;
    free_bytes_ += span.bytes;
    span.use = Span::Use::kFree;
  }
  span.stream = stream;
  span.epoch = epoch;
  // A neighbour of no stream is merged too. It then waits for this stream until the next mark.
  const auto joins = [stream](const Span* other) {
    return other->is_free() && (other->stream == stream || other->stream == kNoStream);
  };
  Span* whole = &span;
  while (joins(whole->before)) {
    whole = whole->before;
    free_.remove(*whole);
    epoch = std::max(epoch, whole->epoch);
    join(*whole, *whole->after);
  }
  while (joins(whole->after)) {
    free_.remove(*whole->after);
    epoch = std::max(epoch, whole->after->epoch);
    join(*whole, *whole->after);
  }
  whole->stream = stream;
  whole->epoch = stream == kNoStream ? 0 : epoch;
  free_.insert(*whole);
}

// A span of `from` does not merge with what is moved, so no pointer of this list is merged away.
void Heap::pass_on(StreamIndex from, std::uint64_t until, StreamIndex to, std::uint64_t epoch) {
  for (Span* span : free_.all_of(from)) {
    if (span->epoch >= until) continue;
    free_.remove(*span);
    free(*span, to, epoch);
  }
}

// ---- Bookkeeping ----

Span& Heap::make(Address base, std::uint64_t bytes, Span::Use use) {
  if (spare_.empty()) spare_.push_back(&spans_.emplace_back());
  Span& span = *spare_.back();
  spare_.pop_back();
  span.base = base;
  span.bytes = bytes;
  span.use = use;
  return span;
}

void Heap::discard(Span& span) {
  span.use = Span::Use::kFree;
  span.bytes = 0;
  spare_.push_back(&span);
}

Span& Heap::split(Span& span, std::uint64_t bytes) {
  Span& rest = make(span.base + bytes, span.bytes - bytes, span.use);
  rest.stream = span.stream;
  rest.epoch = span.epoch;
  link(rest, *span.after);
  link(span, rest);
  span.bytes = bytes;
  return rest;
}

void Heap::join(Span& span, Span& after) {
  span.bytes += after.bytes;
  link(span, *after.after);
  discard(after);
}

void Heap::link(Span& left, Span& right) {
  left.after = &right;
  right.before = &left;
}

}  // namespace gpumem::allocator
