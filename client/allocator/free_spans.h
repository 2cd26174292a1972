#pragma once
#include <algorithm>
#include <deque>
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
    while (sets_.size() <= stream) sets_.emplace_back();
    return sets_[stream];
  }
  FreeSet* set_of(const Span& span) {
    if (span.is_free()) return &of_stream(span.stream);
    return span.is_gap() ? &gaps_ : nullptr;
  }

  const std::uint64_t unit_;
  std::deque<FreeSet> sets_;  // by stream
  FreeSet gaps_;
};

}  // namespace gpumem::allocator
