#include "client/allocator/free_spans.h"

namespace gpumem::allocator {
namespace {

// How many of the best-fitting spans are compared for a small block. The lowest of them is taken, so that
// small blocks gather at low addresses.
constexpr int kLooks = 4;

void append(FreeSet& set, std::vector<Span*>& to) {
  for (Span& span : set) to.push_back(&span);
}

}  // namespace

Span* FreeSpans::fit(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  Sets& sets = sets_of(stream);
  const auto has_place = [&](const Span& span) { return place(span, bytes, cut) != 0; };
  if (!is_small(bytes, cut)) {
    Span* found = smallest(sets.open, bytes, has_place);
    return found != nullptr ? found : smallest(sets.small, bytes, has_place);
  }
  Span* found = lowest_small(sets.small, bytes, cut);
  if (found == nullptr) {
    found = smallest(sets.open, unit_, [this](const Span& span) { return whole_unit(span) != 0; });
  }
  return found != nullptr ? found : smallest(sets.open, bytes, has_place);
}

Span* FreeSpans::better(Span* a, Span* b, std::uint64_t bytes, Cut cut) const {
  if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
  if (a->small != b->small) return a->small == is_small(bytes, cut) ? a : b;
  return *b < *a ? b : a;
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

}  // namespace gpumem::allocator
