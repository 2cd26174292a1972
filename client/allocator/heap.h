#pragma once
#include <deque>
#include <unordered_map>
#include <vector>

#include "client/allocator/free_spans.h"

namespace gpumem::allocator {

/// Mapped memory, divided into spans. Free spans are indexed by the stream whose work may still use them.
/// Small spans have units of their own, so that a few of them do not keep much memory from being moved or
/// returned. Bookkeeping only: no driver, no streams, no locks.
/// Invariant  two adjacent free spans never belong to the same stream, unless a unit for small spans begins
///            or ends between them. No work uses the free spans of kNoStream.
class Heap {
 public:
  /// `unit`  of extents' sizes and addresses. No slab crosses a unit boundary, so that a few slots keep one
  ///         extent, not two.
  explicit Heap(std::uint64_t unit) : unit_(unit), free_(unit) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Adds [at, at + bytes), which has been mapped, as free memory of `stream`. Merges it with adjacent free
  /// spans of `stream` or of no stream.
  void add(Address at, std::uint64_t bytes, StreamIndex stream, std::uint64_t epoch);
  /// Removes [from, to), a part of the free span `span`, which is no longer mapped.
  void cut(Span& span, Address from, Address to);

  /// Takes `bytes` for work on `stream` from the best fit among the free spans of the stream and of no
  /// stream. Null if none fits.
  Span* take(std::uint64_t bytes, Cut cut, StreamIndex stream);
  /// The best fit among the free spans of `stream` alone. Null if none fits.
  Span* fit(std::uint64_t bytes, Cut cut, StreamIndex stream) { return free_.fit(bytes, cut, stream); }
  /// Takes `bytes` from the free span `span`, which must fit.
  Span* take_of(Span& span, std::uint64_t bytes, Cut cut);
  /// Takes all of the free span `span`.
  Span* take_whole(Span& span) { return use(span, span.bytes); }
  /// Makes `span` longer by `bytes` of the free span after it. False if there is not enough.
  bool widen(Span& span, std::uint64_t bytes);
  /// Makes `span` shorter, to `keep` bytes. The rest becomes free memory of `stream`.
  void narrow(Span& span, std::uint64_t keep, StreamIndex stream, std::uint64_t epoch);

  /// Frees `span`. Work given to `stream` until its next mark after `epoch` may still use it.
  void free(Span& span, StreamIndex stream, std::uint64_t epoch);

  /// Moves the free spans of `from` to `to`, with `epoch` of `to`. The caller has ordered the work of `to`
  /// after that of `from`.
  void adopt(StreamIndex from, StreamIndex to, std::uint64_t epoch);
  /// The work of `stream` up to its mark `epoch` is done: what became free before it belongs to no stream
  /// now.
  void settle(StreamIndex stream, std::uint64_t epoch);

  /// Opens the unit of `span`, if it was set aside for small spans, to all sizes. `span` may be merged with
  /// its neighbours. open_units() does so for all such units with free spans.
  void open_unit(Span& span);
  void open_units();

  /// The span that ends, or begins, at `at`, the end or beginning of a mapped range. Null if none does.
  Span* ending_at(Address at) const { return edge(ends_, at); }
  Span* beginning_at(Address at) const { return edge(begins_, at); }

  /// The free spans of `stream` of at least a unit's length. All that contain a whole unit are among them.
  FreeSpans::Range long_spans_of(StreamIndex stream) const { return free_.long_ones(stream); }
  /// The streams that have free spans, without kNoStream.
  std::vector<StreamIndex> streams() const { return free_.streams(); }

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  /// The least that was free since the last call.
  std::uint64_t take_low_water();

  /// Calls `visit` with each slab.
  template <class Visit>
  void each_slab(Visit visit) {
    for (Span& span : spans_) {
      if (span.use == Span::Use::kSlab) visit(span);
    }
  }
  /// Calls `visit` with each span in use, in no order.
  template <class Visit>
  void each_in_use(Visit visit) const {
    for (const Span& span : spans_) {
      if (!span.is_free()) visit(span);
    }
  }

 private:
  Span& make(Address base, std::uint64_t bytes);
  void discard(Span& span);
  Span* use(Span& span, std::uint64_t bytes);
  /// Splits `span` at `bytes`, both parts with the same use. Returns the second.
  Span& split(Span& span, std::uint64_t bytes);
  /// Splits the free span `span` so that [from, from + bytes) is a span. Returns that.
  Span& carve(Span& span, Address from, std::uint64_t bytes);
  /// Sets a whole unit of `span` aside for small spans, if it has one. Returns the span to use.
  Span& for_small(Span& span);
  bool in_one_unit(const Span& a, const Span& b) const { return a.base / unit_ == b.base / unit_; }
  /// Merges `span` with `after`, the span after it.
  void join(Span& span, Span& after);
  static void link(Span* left, Span* right);
  using Edges = std::unordered_map<Address, Span*>;
  static Span* edge(const Edges& edges, Address at);

  const std::uint64_t unit_;
  std::deque<Span> spans_;
  std::vector<Span*> spare_;  // recycled objects
  FreeSpans free_;
  Edges ends_;    // spans without one after them, by end
  Edges begins_;  // spans without one before them, by base
  std::uint64_t free_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t low_water_ = 0;
};

}  // namespace gpumem::allocator
