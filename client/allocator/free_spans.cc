#include "client/allocator/free_spans.h"

#include <algorithm>

namespace gpumem::allocator {
namespace {

// How many of the best-fitting spans are compared for a small block. The lowest of them is taken, so that
// small blocks gather at low addresses.
constexpr int kLooks = 4;

struct FitsBytes {
  bool operator()(const Span& span, std::uint64_t bytes) const { return span.bytes < bytes; }
  bool operator()(std::uint64_t bytes, const Span& span) const { return bytes < span.bytes; }
};

void append(FreeSet& set, std::vector<Span*>& to) {
  for (Span& span : set) to.push_back(&span);
}

}  // namespace

Span* FreeSpans::fit(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  if (stream >= sets_.size()) return nullptr;
  Sets& sets = *sets_[stream];
  if (!is_small(bytes, cut)) {
    Span* found = smallest(sets.open, bytes, cut);
    return found != nullptr ? found : smallest(sets.small, bytes, cut);
  }
  Span* found = lowest_small(sets.small, bytes, cut);
  if (found == nullptr) found = with_whole_unit(sets.open);
  return found != nullptr ? found : smallest(sets.open, bytes, cut);
}

Span* FreeSpans::better(Span* a, Span* b, std::uint64_t bytes, Cut cut) const {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (a->small != b->small) return a->small == is_small(bytes, cut) ? a : b;
  return *b < *a ? b : a;
}

FreeSpans::Range FreeSpans::long_ones(StreamIndex stream) const {
  if (stream >= sets_.size()) return {};
  const FreeSet& open = sets_[stream]->open;
  return {open.lower_bound(unit_, FitsBytes()), open.end()};
}

std::vector<Span*> FreeSpans::all_of(StreamIndex stream) {
  std::vector<Span*> all;
  append(sets_of(stream).open, all);
  append(sets_of(stream).small, all);
  std::ranges::sort(all, {}, [](const Span* span) { return span->base; });
  return all;
}

std::vector<Span*> FreeSpans::all_small() {
  std::vector<Span*> all;
  for (const auto& sets : sets_) append(sets->small, all);
  return all;
}

std::vector<StreamIndex> FreeSpans::streams() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < sets_.size(); ++i) {
    if (!sets_[i]->open.empty() || !sets_[i]->small.empty()) found.push_back(static_cast<StreamIndex>(i));
  }
  return found;
}

Span* FreeSpans::lowest_small(FreeSet& set, std::uint64_t bytes, Cut cut) const {
  Span* lowest = nullptr;
  int looks = 0;
  for (auto at = set.lower_bound(bytes, FitsBytes()); at != set.end(); ++at) {
    if (++looks > kLooks && lowest != nullptr) break;
    if (place(*at, bytes, cut) != 0 && (lowest == nullptr || at->base < lowest->base)) lowest = &*at;
  }
  return lowest;
}

Span* FreeSpans::smallest(FreeSet& set, std::uint64_t bytes, Cut cut) const {
  const auto found = std::find_if(set.lower_bound(bytes, FitsBytes()), set.end(),
                                  [&](const Span& span) { return place(span, bytes, cut) != 0; });
  return found == set.end() ? nullptr : &*found;
}

Span* FreeSpans::with_whole_unit(FreeSet& set) const {
  int looks = 0;
  for (auto at = set.lower_bound(unit_, FitsBytes()); at != set.end() && looks < kLooks; ++at, ++looks) {
    if (whole_unit(*at) != 0) return &*at;
  }
  const auto surely = set.lower_bound(2 * unit_, FitsBytes());
  return surely == set.end() ? nullptr : &*surely;
}

FreeSpans::Sets& FreeSpans::grown_to(StreamIndex stream) {
  while (sets_.size() <= stream) sets_.push_back(std::make_unique<Sets>());
  return *sets_[stream];
}

}  // namespace gpumem::allocator
