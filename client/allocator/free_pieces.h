#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "client/allocator/piece.h"

namespace gpumem::allocator {

/// How a free piece is cut: anywhere, or as a run, which begins at a granule and lies in one unit.
enum class Cut { kPiece, kRun };

/// The free pieces of a heap, by the stream whose work may still use them, those in units for small ones
/// apart; finds which of them a block is best cut of.
class FreePieces {
 public:
  explicit FreePieces(std::uint64_t unit) : unit_(unit) {}

  void insert(Piece& piece) { set_of(piece).insert(piece); }
  void remove(Piece& piece) {
    FreeSet& set = set_of(piece);
    set.erase(set.iterator_to(piece));
  }

  /// Whether what is cut in this way belongs into the units for small ones.
  bool is_small(std::uint64_t bytes, Cut cut) const {
    return cut == Cut::kRun || bytes <= unit_ / kSmallPart;
  }
  /// The best of the pieces of `stream` alone to cut `bytes` of. Null: there is none.
  Piece* fit(std::uint64_t bytes, Cut cut, StreamIndex stream);
  /// The better one of two, either of which may be null.
  Piece* better(Piece* a, Piece* b, std::uint64_t bytes, Cut cut) const;
  /// Where `bytes` would be cut of `piece`. Nothing: they do not fit.
  std::optional<Address> place(const Piece& piece, std::uint64_t bytes, Cut cut) const;
  /// Where the first whole unit of `piece` begins. Nothing: it has none.
  std::optional<Address> whole_unit(const Piece& piece) const;

  struct Range {
    FreeSet::const_iterator first, last;
    auto begin() const { return first; }
    auto end() const { return last; }
  };
  /// Those of `stream` that are as long as a unit: all that have a whole one are among them.
  Range long_ones(StreamIndex stream) const;
  /// All of `stream`, by address.
  std::vector<Piece*> all_of(StreamIndex stream);
  /// All in units for small ones, in no order.
  std::vector<Piece*> all_small();
  /// The streams that have free pieces, without kNoStream.
  std::vector<StreamIndex> streams() const;

 private:
  /// Blocks up to this part of a unit are small: few of them fill one, and any of them keeps one.
  static constexpr std::uint64_t kSmallPart = 8;
  struct Sets {
    FreeSet open, small;
  };
  Sets& sets_of(StreamIndex stream) { return stream < sets_.size() ? *sets_[stream] : grown_to(stream); }
  Sets& grown_to(StreamIndex stream);
  FreeSet& set_of(const Piece& piece) {
    Sets& sets = sets_of(piece.stream);
    return piece.small ? sets.small : sets.open;
  }
  Piece* lowest_small(FreeSet& set, std::uint64_t bytes, Cut cut) const;
  Piece* smallest(FreeSet& set, std::uint64_t bytes, Cut cut) const;
  Piece* with_whole_unit(FreeSet& set) const;

  const std::uint64_t unit_;
  std::vector<std::unique_ptr<Sets>> sets_;  // by stream
};

}  // namespace gpumem::allocator
