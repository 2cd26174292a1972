#include "client/allocator/free_spans.h"

namespace gpumem::allocator {
namespace {

// How many of the best-fitting spans are compared for a slab. The lowest of them is taken, so that slabs
// gather at low addresses.
constexpr int kLooks = 4;

}  // namespace

Span* FreeSpans::fit(std::uint64_t bytes, Cut cut, StreamIndex stream) {
  FreeSet& set = of_stream(stream);
  auto at = set.lower_bound(bytes, FitsBytes());
  if (cut == Cut::kSpan) return at == set.end() ? nullptr : &*at;
  Span* lowest = nullptr;
  for (int looks = 0; at != set.end() && (looks < kLooks || lowest == nullptr); ++at, ++looks) {
    if (place(*at, bytes, cut) != 0 && (lowest == nullptr || at->base < lowest->base)) lowest = &*at;
  }
  return lowest;
}

std::vector<Span*> FreeSpans::all_of(StreamIndex stream) {
  std::vector<Span*> all;
  for (Span& span : of_stream(stream)) all.push_back(&span);
  std::ranges::sort(all, {}, [](const Span* span) { return span->base; });
  return all;
}

std::vector<StreamIndex> FreeSpans::streams() const {
  std::vector<StreamIndex> found;
  for (std::size_t i = 1; i < sets_.size(); ++i) {
    if (!sets_[i].empty()) found.push_back(static_cast<StreamIndex>(i));
  }
  return found;
}

}  // namespace gpumem::allocator
