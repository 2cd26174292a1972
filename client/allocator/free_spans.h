#pragma once
#include <memory>
#include <ranges>
#include <vector>

#include "client/allocator/span.h"

namespace gpumem::allocator {

/// How a free span is cut: at any quantum, or as a slab, which begins at a granule and lies in one unit.
enum class Cut { kSpan, kSlab };

/// The free spans of a heap, by the stream whose work may still use them. Spans in units for small blocks are
/// kept separately. Finds the best span to cut a block from.
class FreeSpans {
 public:
  explicit FreeSpans(std::uint64_t unit) : unit_(unit) {}

  void insert(Span& span) { set_of(span).insert(span); }
  void remove(Span& span) {
    FreeSet& set = set_of(span);
    set.erase(set.iterator_to(span));
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

  struct Range {  // not std::ranges::subrange: clang 14 cannot compile it for these iterators
    FreeSet::const_iterator from{}, to{};
    FreeSet::const_iterator begin() const { return from; }
    FreeSet::const_iterator end() const { return to; }
  };
  /// The spans of `stream` of at least a unit's length. All that contain a whole unit are among them.
  Range long_ones(StreamIndex stream) const;
  /// All spans of `stream`, in address order.
  std::vector<Span*> all_of(StreamIndex stream);
  /// All spans in units for small blocks, in no order.
  std::vector<Span*> all_small();
  /// The streams that have free spans, without kNoStream.
  std::vector<StreamIndex> streams() const;

 private:
  /// Blocks up to this part of a unit are small.
  static constexpr std::uint64_t kSmallPart = 8;
  struct Sets {
    FreeSet open, small;
  };
  Sets& sets_of(StreamIndex stream) { return stream < sets_.size() ? *sets_[stream] : grown_to(stream); }
  Sets& grown_to(StreamIndex stream);
  FreeSet& set_of(const Span& span) {
    Sets& sets = sets_of(span.stream);
    return span.small ? sets.small : sets.open;
  }
  Span* lowest_small(FreeSet& set, std::uint64_t bytes, Cut cut) const;
  Span* smallest(FreeSet& set, std::uint64_t bytes, Cut cut) const;
  Span* with_whole_unit(FreeSet& set) const;

  const std::uint64_t unit_;
  std::vector<std::unique_ptr<Sets>> sets_;  // by stream
};

}  // namespace gpumem::allocator
