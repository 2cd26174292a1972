#include "client/allocator/free_pieces.h"

#include <algorithm>

namespace gpumem::allocator {
namespace {

// So many are looked at. Among those that fit a small block best the lowest is taken: small blocks gather.
constexpr int kLooks = 4;

struct FitsBytes {
  bool operator()(const Piece& piece, std::uint64_t bytes) const { return piece.bytes < bytes; }
  bool operator()(std::uint64_t bytes, const Piece& piece) const { return bytes < piece.bytes; }
};

void append(FreeSet& set, std::vector<Piece*>& to) {
  for (Piece& piece : set) to.push_back(&piece);
}

}  // namespace

Piece* FreePieces::fit(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  Sets& sets = sets_of(stream);
  if (!is_small(bytes, cut)) {
    Piece* found = smallest(sets.open, bytes, cut);
    return found != nullptr ? found : smallest(sets.small, bytes, cut);
  }
  Piece* found = lowest_small(sets.small, bytes, cut);
  if (found == nullptr) found = with_whole_unit(sets.open);
  return found != nullptr ? found : smallest(sets.open, bytes, cut);
}

Piece* FreePieces::better(Piece* a, Piece* b, std::uint64_t bytes, Cut cut) const {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (a->small != b->small) return a->small == is_small(bytes, cut) ? a : b;
  return *b < *a ? b : a;
}

std::optional<Address> FreePieces::place(const Piece& piece, std::uint64_t bytes, Cut cut) const {
  Address at = piece.base;
  if (cut == Cut::kRun) {
    at = rounded_up(at, kGranule);
    const Address boundary = rounded_up(at + 1, unit_);
    if (at + bytes > boundary) at = boundary;
  }
  if (at + bytes > piece.end()) return std::nullopt;
  return at;
}

std::optional<Address> FreePieces::whole_unit(const Piece& piece) const {
  const Address at = rounded_up(piece.base, unit_);
  if (at + unit_ > piece.end()) return std::nullopt;
  return at;
}

FreePieces::Range FreePieces::long_ones(StreamIndex stream) const {
  if (stream >= sets_.size()) return {};
  const FreeSet& open = sets_[stream]->open;
  return {open.lower_bound(unit_, FitsBytes()), open.end()};
}

std::vector<Piece*> FreePieces::all_of(StreamIndex stream) {
  std::vector<Piece*> all;
  append(sets_of(stream).open, all);
  append(sets_of(stream).small, all);
  std::ranges::sort(all, {}, [](const Piece* piece) { return piece->base; });
  return all;
}

std::vector<Piece*> FreePieces::all_small() {
  std::vector<Piece*> all;
  for (const auto& sets : sets_) append(sets->small, all);
  return all;
}

std::vector<StreamIndex> FreePieces::streams() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < sets_.size(); ++i) {
    if (!sets_[i]->open.empty() || !sets_[i]->small.empty()) found.push_back(static_cast<StreamIndex>(i));
  }
  return found;
}

Piece* FreePieces::lowest_small(FreeSet& set, std::uint64_t bytes, Cut cut) const {
  Piece* lowest = nullptr;
  int looks = 0;
  for (auto at = set.lower_bound(bytes, FitsBytes()); at != set.end(); ++at) {
    if (++looks > kLooks && lowest != nullptr) break;
    if (place(*at, bytes, cut) && (lowest == nullptr || at->base < lowest->base)) lowest = &*at;
  }
  return lowest;
}

Piece* FreePieces::smallest(FreeSet& set, std::uint64_t bytes, Cut cut) const {
  const auto found = std::find_if(set.lower_bound(bytes, FitsBytes()), set.end(),
                                  [&](const Piece& piece) { return place(piece, bytes, cut).has_value(); });
  return found == set.end() ? nullptr : &*found;
}

Piece* FreePieces::with_whole_unit(FreeSet& set) const {
  int looks = 0;
  for (auto at = set.lower_bound(unit_, FitsBytes()); at != set.end() && looks < kLooks; ++at, ++looks) {
    if (whole_unit(*at)) return &*at;
  }
  const auto surely = set.lower_bound(2 * unit_, FitsBytes());
  return surely == set.end() ? nullptr : &*surely;
}

FreePieces::Sets& FreePieces::grown_to(StreamIndex stream) {
  while (sets_.size() <= stream) sets_.push_back(std::make_unique<Sets>());
  return *sets_[stream];
}

}  // namespace gpumem::allocator
