#include "client/allocator/ground.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace gpumem::allocator {

Ground::Ground(Address base, Bytes addresses) { gaps_.emplace(base, base + addresses.count); }

Ground::Span Ground::whole_within(Address from, Address to) const {
  const auto first = extents_.lower_bound(from);
  if (first == extents_.end() || first->first >= to) return {};
  auto last = std::prev(extents_.lower_bound(to));
  Address end = last->first + last->second.size.count;
  if (end > to) end = last->first;
  return first->first < end ? Span{first->first, end} : Span{};
}

std::vector<Extent> Ground::extents_in(const Span& span) const {
  std::vector<Extent> found;
  for (auto at = extents_.lower_bound(span.from); at != extents_.end() && at->first < span.to; ++at) {
    found.push_back(at->second);
  }
  return found;
}

std::vector<Ground::Span> Ground::gaps() const {
  std::vector<Span> all;
  for (const auto& [from, to] : gaps_) all.push_back({from, to});
  return all;
}

std::vector<Ground::Span> Ground::segments() const {
  std::vector<Span> all;
  for (const auto& [at, extent] : extents_) {
    if (all.empty() || all.back().to != at) all.push_back({at, at});
    all.back().to += extent.size.count;
  }
  return all;
}

Ground::Span Ground::gap_at(Address at) const {
  const auto found = gaps_.find(at);
  return found == gaps_.end() ? Span{} : Span{found->first, found->second};
}

Ground::Span Ground::gap_before(Address at) const {
  const auto next = gaps_.lower_bound(at);
  if (next == gaps_.begin()) return {};
  const auto found = std::prev(next);
  return found->second == at ? Span{found->first, found->second} : Span{};
}

Ground::Span Ground::gap_of(std::uint64_t bytes) const {
  for (const auto& [from, to] : gaps_) {
    if (to - from >= bytes) return {from, to};
  }
  return {};
}

Ground::Span Ground::largest_gap() const {
  Span largest;
  for (const auto& [from, to] : gaps_) {
    if (to - from > largest.bytes()) largest = {from, to};
  }
  return largest;
}

void Ground::lay(Address at, std::span<const Extent> extents) {
  Address end = at;
  for (const Extent& extent : extents) {
    extents_.emplace(end, extent);
    end += extent.size.count;
    mapped_ += extent.size;
  }
  close_gap(at, end);
}

std::vector<Extent> Ground::lift(const Span& span) {
  std::vector<Extent> lifted;
  auto at = extents_.find(span.from);
  while (at != extents_.end() && at->first < span.to) {
    lifted.push_back(at->second);
    mapped_ -= at->second.size;
    at = extents_.erase(at);
  }
  open_gap(span.from, span.to);
  return lifted;
}

void Ground::keep(Address at, std::uint64_t bytes) { close_gap(at, at + bytes); }
void Ground::unkeep(Address at, std::uint64_t bytes) {
  if (bytes != 0) open_gap(at, at + bytes);
}

void Ground::open_gap(Address from, Address to) {
  if (const Span left = gap_before(from); left.bytes() != 0) {
    from = left.from;
    gaps_.erase(left.from);
  }
  if (const Span right = gap_at(to); right.bytes() != 0) {
    to = right.to;
    gaps_.erase(right.from);
  }
  gaps_.emplace(from, to);
}

// What lies in kept room is in no gap.
void Ground::close_gap(Address from, Address to) {
  const auto next = gaps_.upper_bound(from);
  if (next == gaps_.begin()) return;
  const auto [begin, end] = *std::prev(next);
  if (end <= from) return;
  GPUMEM_CHECK(to <= end, "what is laid fits its gap");
  gaps_.erase(begin);
  if (begin < from) gaps_.emplace(begin, from);
  if (to < end) gaps_.emplace(to, end);
}

}  // namespace gpumem::allocator
