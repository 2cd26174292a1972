#include "client/allocator/heap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpumem::allocator {

// ---- Mapping ----

void Heap::add(Address at, std::uint64_t bytes, StreamIndex stream, std::uint64_t epoch) {
  Span& span = make(at, bytes);
  link(ending_at(at), &span);
  link(&span, beginning_at(at + bytes));
  if (span.before != nullptr) {
    ends_.erase(at);
  } else {
    begins_[at] = &span;
  }
  if (span.after != nullptr) {
    begins_.erase(span.end());
  } else {
    ends_[span.end()] = &span;
  }
  free_bytes_ += bytes;
  free(span, stream, epoch);
}

void Heap::cut(Span& span, Address from, Address to) {
  GPUMEM_CHECK(span.is_free() && span.base <= from && to <= span.end(), "only free memory is unmapped");
  Span* out = &carve(span, from, to - from);
  free_.remove(*out);
  free_bytes_ -= out->bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  if (out->before != nullptr) {
    out->before->after = nullptr;
    ends_[from] = out->before;
  } else {
    begins_.erase(from);
  }
  if (out->after != nullptr) {
    out->after->before = nullptr;
    begins_[to] = out->after;
  } else {
    ends_.erase(to);
  }
  discard(*out);
}

// ---- Taking ----

Span* Heap::take(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  Span* found = fit(bytes, cut, kNoStream);
  if (stream != kNoStream) found = free_.better(fit(bytes, cut, stream), found, bytes, cut);
  return found == nullptr ? nullptr : take_of(*found, bytes, cut);
}

Span* Heap::take_of(Span& span, std::uint64_t bytes, Cut cut) {
  Span& from = free_.is_small(bytes, cut) ? for_small(span) : span;
  const Address at = free_.place(from, bytes, cut);
  return use(at == from.base ? from : carve(from, at, from.end() - at), bytes);
}

Span& Heap::for_small(Span& span) {
  const Address at = free_.whole_unit(span);
  if (at == 0) return span;
  Span& unit = carve(span, at, unit_);
  free_.remove(unit);
  unit.small = true;
  free_.insert(unit);
  return unit;
}

Span& Heap::carve(Span& span, Address from, std::uint64_t bytes) {
  if (from == span.base && bytes == span.bytes) return span;
  Span* out = &span;
  free_.remove(span);
  if (from > span.base) {
    out = &split(span, from - span.base);
    free_.insert(span);
  }
  if (bytes < out->bytes) free_.insert(split(*out, bytes));
  free_.insert(*out);
  return *out;
}

Span* Heap::use(Span& span, std::uint64_t bytes) {
  free_.remove(span);
  if (span.bytes > bytes) free_.insert(split(span, bytes));
  free_bytes_ -= bytes;
  used_bytes_ += bytes;
  low_water_ = std::min(low_water_, free_bytes_);
  span.use = Span::Use::kBlock;
  return &span;
}

bool Heap::widen(Span& span, std::uint64_t bytes) {
  Span* after = span.after;
  if (after == nullptr || !after->is_free() || after->bytes < bytes) return false;
  if (span.small != after->small) open_unit(span.small ? span : *after);
  join(span, *use(*after, bytes));
  return true;
}

void Heap::narrow(Span& span, std::uint64_t keep, StreamIndex stream, std::uint64_t epoch) {
  Span& rest = split(span, keep);
  used_bytes_ -= rest.bytes;
  free_bytes_ += rest.bytes;
  rest.use = Span::Use::kFree;
  free(rest, stream, epoch);
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
  const auto joins = [&span, stream, this](const Span* other) {
    return other != nullptr && other->is_free() && (other->stream == stream || other->stream == kNoStream) &&
           other->small == span.small && (!span.small || in_one_unit(*other, span));
  };
  Span* whole = &span;
  while (joins(whole->before)) {
    Span& taken_in = *whole;
    whole = whole->before;
    free_.remove(*whole);
    epoch = std::max(epoch, whole->epoch);
    join(*whole, taken_in);
  }
  while (joins(whole->after)) {
    Span& after = *whole->after;
    free_.remove(after);
    epoch = std::max(epoch, after.epoch);
    join(*whole, after);
  }
  whole->stream = stream;
  whole->epoch = stream == kNoStream ? 0 : epoch;
  if (whole->small && whole->bytes == unit_) {  // the unit is wholly free, so it is open to all again
    whole->small = false;
    free(*whole, whole->stream, whole->epoch);
    return;
  }
  free_.insert(*whole);
}

void Heap::settle(StreamIndex stream, std::uint64_t epoch) {
  // A span of no stream never merges with a neighbour of a stream, so no pointer of this list is merged away.
  for (Span* span : free_.all_of(stream)) {
    if (span->epoch >= epoch) continue;
    free_.remove(*span);
    free(*span, kNoStream, 0);
  }
}

void Heap::adopt(StreamIndex from, StreamIndex to, std::uint64_t epoch) {
  for (Span* span : free_.all_of(from)) {
    free_.remove(*span);
    free(*span, to, epoch);
  }
}

// ---- Units for small spans ----

void Heap::open_unit(Span& span) {
  if (!span.small) return;
  Span* first = &span;
  while (first->before != nullptr && in_one_unit(*first->before, span)) first = first->before;
  std::vector<Span*> opened;
  for (Span* at = first; at != nullptr && in_one_unit(*at, span); at = at->after) {
    if (at->is_free()) {
      free_.remove(*at);
      opened.push_back(at);
    }
    at->small = false;
    if (at->is_free()) free_.insert(*at);
  }
  for (Span* at : opened) {        // they may now merge with the unit's neighbours
    if (at->bytes == 0) continue;  // it was merged with another of these
    free_.remove(*at);
    free(*at, at->stream, at->epoch);
  }
}

void Heap::open_units() {
  for (Span* span : free_.all_small()) open_unit(*span);
}

// ---- Bookkeeping ----

std::uint64_t Heap::take_low_water() { return std::exchange(low_water_, free_bytes_); }

Span& Heap::make(Address base, std::uint64_t bytes) {
  Span* span = nullptr;
  if (spare_.empty()) {
    span = &spans_.emplace_back();
  } else {
    span = spare_.back();
    spare_.pop_back();
  }
  span->base = base;
  span->bytes = bytes;
  span->before = nullptr;
  span->after = nullptr;
  span->use = Span::Use::kFree;
  span->small = false;
  return *span;
}

void Heap::discard(Span& span) {
  span.use = Span::Use::kFree;
  span.bytes = 0;
  spare_.push_back(&span);
}

Span& Heap::split(Span& span, std::uint64_t bytes) {
  Span& rest = make(span.base + bytes, span.bytes - bytes);
  rest.stream = span.stream;
  rest.epoch = span.epoch;
  rest.use = span.use;
  rest.small = span.small;
  link(&rest, span.after);
  link(&span, &rest);
  span.bytes = bytes;
  if (rest.after == nullptr) ends_[rest.end()] = &rest;
  return rest;
}

void Heap::join(Span& span, Span& after) {
  span.bytes += after.bytes;
  link(&span, after.after);
  if (after.after == nullptr) ends_[span.end()] = &span;
  discard(after);
}

void Heap::link(Span* left, Span* right) {
  if (left != nullptr) left->after = right;
  if (right != nullptr) right->before = left;
}

Span* Heap::edge(const Edges& edges, Address at) {
  const auto found = edges.find(at);
  return found == edges.end() ? nullptr : found->second;
}

}  // namespace gpumem::allocator
