#pragma once
#include <memory>
#include <optional>
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
  /// Where `bytes` would be cut from `span`. Nothing if they do not fit.
  std::optional<Address> place(const Span& span, std::uint64_t bytes, Cut cut) const;
  /// Where the first whole unit of `span` begins. Nothing if it has none.
  std::optional<Address> whole_unit(const Span& span) const;

  struct Range {
    FreeSet::const_iterator first, last;
    auto begin() const { return first; }
    auto end() const { return last; }
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
