#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// How a free span is cut: at any quantum, or as a slab, which begins at a granule and lies in one unit.
enum class Cut { kSpan, kSlab };

/// The free spans of a heap, by the stream whose work may still use them, and its gaps. Finds the best span
/// to cut a block from.
class FreeSpans {
 public:
  explicit FreeSpans(std::uint64_t unit) : unit_(unit) {}

  /// Of a span of any use. Only free spans and gaps are kept.
  void insert(Span& span) {
    if (FreeSet* set = set_of(span)) set->insert(span);
  }
  void remove(Span& span) {
    if (FreeSet* set = set_of(span)) set->erase(set->iterator_to(span));
  }

  /// The best span of `stream` alone to cut `bytes` from. Null if none fits.
  Span* fit(std::uint64_t bytes, Cut cut, StreamIndex stream);
  /// Where `bytes` would be cut from `span`. Zero if they do not fit.
  Address place(const Span& span, std::uint64_t bytes, Cut cut) const {
    Address at = span.base;
    if (cut == Cut::kSlab) {
      at = rounded_up(at, kGranule);
      const Address boundary = rounded_up(at + 1, unit_);
      if (at + bytes > boundary) at = boundary;
    }
    return at + bytes > span.end() ? 0 : at;
  }

  /// Calls `visit` with each span of `stream` of at least a unit's length. All that contain a whole unit are
  /// among them.
  template <class Visit>
  void each_long(StreamIndex stream, Visit visit) {
    FreeSet& set = of_stream(stream);
    for (auto at = set.lower_bound(unit_, FitsBytes()); at != set.end(); ++at) visit(*at);
  }
  FreeSet& gaps() { return gaps_; }
  /// All spans of `stream`, in address order.
  std::vector<Span*> all_of(StreamIndex stream);
  /// The streams that have free spans, without kNoStream.
  std::vector<StreamIndex> streams() const;

 private:
  struct FitsBytes {
    bool operator()(const Span& span, std::uint64_t bytes) const { return span.bytes < bytes; }
    bool operator()(std::uint64_t bytes, const Span& span) const { return bytes < span.bytes; }
  };
  FreeSet& of_stream(StreamIndex stream) {
    if (sets_.size() <= stream) sets_.resize(stream + std::size_t{1});
    return sets_[stream];
  }
  FreeSet* set_of(const Span& span) {
    if (span.is_free()) return &of_stream(span.stream);
    return span.is_gap() ? &gaps_ : nullptr;
  }

  const std::uint64_t unit_;
  std::vector<FreeSet> sets_;  // by stream
  FreeSet gaps_;
};

/// An allocator's addresses, divided into spans: mapped memory, free or in use, gaps, and reserved addresses.
/// Free spans are indexed by the stream whose work may still use them. Bookkeeping only: no driver, no
/// streams, no locks.
/// Invariant  adjacent spans are never both gaps or of one stream. No work uses the free spans of kNoStream.
class Heap {
 public:
  /// `unit`  of extents' sizes and addresses. No slab crosses a unit boundary, so that a few slots keep one
  ///         extent, not two.
  Heap(Address base, Bytes addresses, std::uint64_t unit);
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Adds [at, at + bytes) of the gap or the reserved span `into`, which has been mapped, as free memory of
  /// `stream`. Merges it with adjacent free spans of `stream` or of no stream.
  void add(Span& into, Address at, std::uint64_t bytes, StreamIndex stream, std::uint64_t epoch);
  /// Takes [from, from + bytes) out of the free span `span`. It is reserved until release(). Returns it, with
  /// the stream and the epoch of `span`.
  Span& cut(Span& span, Address from, std::uint64_t bytes);

  Span& gap_around(Address at);
  /// Reserves `bytes` for a block with room, and a unit on either side that is never mapped. Returns the unit
  /// before; what is reserved comes after it. Null if there are no addresses.
  Span* reserve(std::uint64_t bytes);
  /// `reserved` becomes a gap.
  void release(Span& reserved);
  /// Turns the span that reserve() returned, and the reserved addresses after it, into gaps.
  void release_room(Span& reserved);

  /// Takes `bytes` for work on `stream` from the best fit among the free spans of the stream and of no
  /// stream. Null if none fits.
  Span* take(std::uint64_t bytes, Cut cut, StreamIndex stream);
  /// Takes `bytes` from the free span `span`, which must fit.
  Span* take_of(Span& span, std::uint64_t bytes, Cut cut) {
    return use(span, free_.place(span, bytes, cut), bytes);
  }
  /// Makes `span` longer by `bytes` of the free span after it, which has as many.
  void widen(Span& span, std::uint64_t bytes) { join(span, *use(*span.after, span.end(), bytes)); }
  /// Makes `span` shorter, to `keep` bytes. The rest becomes free memory of `stream`.
  void narrow(Span& span, std::uint64_t keep, StreamIndex stream, std::uint64_t epoch) {
    free(split(span, keep), stream, epoch);
  }

  /// Frees `span`. Work given to `stream` until its next mark after `epoch` may still use it.
  void free(Span& span, StreamIndex stream, std::uint64_t epoch);

  /// Moves what became free before the epoch `until` of `from` to `to`, with `epoch` of `to`. That work is
  /// done (kNoStream), or the work of `to` was ordered after it.
  void pass_on(StreamIndex from, std::uint64_t until, StreamIndex to, std::uint64_t epoch);

  FreeSpans& free_spans() { return free_; }

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  /// The least that was free since the last call.
  std::uint64_t take_low_water() { return std::exchange(low_water_, free_bytes_); }

  /// Spans of every use, in no order.
  const std::deque<Span>& spans() const { return spans_; }
  std::deque<Span>& spans() { return spans_; }

 private:
  Span& make(Address base, std::uint64_t bytes, Span::Use use);
  void discard(Span& span);
  Span* use(Span& span, Address from, std::uint64_t bytes);
  /// Splits `span` at `bytes`, both parts with the same use. Returns the second.
  Span& split(Span& span, std::uint64_t bytes);
  /// Splits `span`, which is not in use, so that [from, from + bytes) is a span. Returns that, which
  /// FreeSpans does not have any more.
  Span& carve(Span& span, Address from, std::uint64_t bytes);
  void join(Span& span, Span& after);
  static void link(Span& left, Span& right);

  const std::uint64_t unit_;
  std::deque<Span> spans_;
  std::vector<Span*> spare_;  // recycled objects
  FreeSpans free_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t low_water_ = 0;
};

}  // namespace gpumem::allocator
