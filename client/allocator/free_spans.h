#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// How a free span is cut: at any quantum, or as a slab, which begins at a granule and lies in one unit.
enum class Cut { kSpan, kSlab };

/// The free spans of a heap, by the stream whose work may still use them, and its gaps. Spans in units for
/// small blocks are kept separately. Finds the best span to cut a block from.
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

  /// Whether such a block belongs into the units for small blocks.
  bool is_small(std::uint64_t bytes, Cut cut) const {
    return cut == Cut::kSlab || bytes <= unit_ / kSmallPart;
  }
  /// The best span of `stream` alone to cut `bytes` from. Null if none fits.
  Span* fit(std::uint64_t bytes, Cut cut, StreamIndex stream);
  /// The better of two spans, either of which may be null.
  Span* better(Span* a, Span* b, std::uint64_t bytes, Cut cut) const;
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
  /// Where the first whole unit of `span` begins. Zero if it has none.
  Address whole_unit(const Span& span) const {
    const Address at = rounded_up(span.base, unit_);
    return at + unit_ > span.end() ? 0 : at;
  }

  /// Calls `visit` with each span of `stream` of at least a unit's length. All that contain a whole unit are
  /// among them.
  template <class Visit>
  void each_long(StreamIndex stream, Visit visit) {
    FreeSet& open = sets_of(stream).open;
    for (auto at = open.lower_bound(unit_, FitsBytes()); at != open.end(); ++at) visit(*at);
  }
  FreeSet& gaps() { return gaps_; }
  /// All spans of `stream`, in address order.
  std::vector<Span*> all_of(StreamIndex stream);
  /// All spans in units for small blocks, in no order.
  std::vector<Span*> all_small();
  /// The streams that have free spans, without kNoStream.
  std::vector<StreamIndex> streams() const;

 private:
  /// Blocks up to this part of a unit are small.
  static constexpr std::uint64_t kSmallPart = 8;
  struct FitsBytes {
    bool operator()(const Span& span, std::uint64_t bytes) const { return span.bytes < bytes; }
    bool operator()(std::uint64_t bytes, const Span& span) const { return bytes < span.bytes; }
  };
  struct Sets {
    FreeSet open, small;
  };
  Sets& sets_of(StreamIndex stream) {
    while (sets_.size() <= stream) sets_.push_back(std::make_unique<Sets>());
    return *sets_[stream];
  }
  FreeSet* set_of(const Span& span) {
    if (!span.is_free()) return span.is_gap() ? &gaps_ : nullptr;
    Sets& sets = sets_of(span.stream);
    return span.small ? &sets.small : &sets.open;
  }
  /// The smallest span of at least `bytes` that `fits`. Null if there is none.
  template <class Fits>
  static Span* smallest(FreeSet& set, std::uint64_t bytes, Fits fits) {
    const auto found = std::find_if(set.lower_bound(bytes, FitsBytes()), set.end(), fits);
    return found == set.end() ? nullptr : &*found;
  }
  Span* lowest_small(FreeSet& set, std::uint64_t bytes, Cut cut) const;

  const std::uint64_t unit_;
  std::vector<std::unique_ptr<Sets>> sets_;  // by stream
  FreeSet gaps_;
};

}  // namespace gpumem::allocator
