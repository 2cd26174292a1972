#include "client/allocator/address_space.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace gpumem::allocator {

AddressSpace::AddressSpace(Address base, Bytes addresses) { gaps_.emplace(base, base + addresses.count); }

AddressSpace::Range AddressSpace::whole_within(Address from, Address to) const {
  const auto first = extents_.lower_bound(from);
  if (first == extents_.end() || first->first >= to) return {};
  auto last = std::prev(extents_.lower_bound(to));
  Address end = last->first + last->second.size.count;
  if (end > to) end = last->first;
  return first->first < end ? Range{first->first, end} : Range{};
}

std::vector<Extent> AddressSpace::extents_in(const Range& range) const {
  std::vector<Extent> found;
  for (auto at = extents_.lower_bound(range.from); at != extents_.end() && at->first < range.to; ++at) {
    found.push_back(at->second);
  }
  return found;
}

std::vector<AddressSpace::Range> AddressSpace::gaps() const {
  std::vector<Range> all;
  for (const auto& [from, to] : gaps_) all.push_back({from, to});
  return all;
}

std::vector<AddressSpace::Range> AddressSpace::segments() const {
  std::vector<Range> all;
  for (const auto& [at, extent] : extents_) {
    if (all.empty() || all.back().to != at) all.push_back({at, at});
    all.back().to += extent.size.count;
  }
  return all;
}

AddressSpace::Range AddressSpace::gap_at(Address at) const {
  const auto found = gaps_.find(at);
  return found == gaps_.end() ? Range{} : Range{found->first, found->second};
}

AddressSpace::Range AddressSpace::gap_before(Address at) const {
  const auto next = gaps_.lower_bound(at);
  if (next == gaps_.begin()) return {};
  const auto found = std::prev(next);
  return found->second == at ? Range{found->first, found->second} : Range{};
}

AddressSpace::Range AddressSpace::largest_gap() const {
  Range largest;
  for (const auto& [from, to] : gaps_) {
    if (to - from > largest.bytes()) largest = {from, to};
  }
  return largest;
}

void AddressSpace::map(Address at, std::span<const Extent> extents) {
  Address end = at;
  for (const Extent& extent : extents) {
    extents_.emplace(end, extent);
    end += extent.size.count;
    mapped_ += extent.size;
  }
  close_gap(at, end);
}

std::vector<Extent> AddressSpace::unmap(const Range& range) {
  open_gap(range.from, range.to);
  return take_out(range);
}

std::vector<Extent> AddressSpace::take_out(const Range& range) {
  std::vector<Extent> unmapped;
  auto at = extents_.find(range.from);
  while (at != extents_.end() && at->first < range.to) {
    unmapped.push_back(at->second);
    mapped_ -= at->second.size;
    at = extents_.erase(at);
  }
  return unmapped;
}

void AddressSpace::reserve(Address at, std::uint64_t bytes) { close_gap(at, at + bytes); }
void AddressSpace::release(Address at, std::uint64_t bytes) {
  if (bytes != 0) open_gap(at, at + bytes);
}

void AddressSpace::open_gap(Address from, Address to) {
  if (const Range left = gap_before(from); left.bytes() != 0) {
    from = left.from;
    gaps_.erase(left.from);
  }
  if (const Range right = gap_at(to); right.bytes() != 0) {
    to = right.to;
    gaps_.erase(right.from);
  }
  gaps_.emplace(from, to);
}

// Reserved room is in no gap.
void AddressSpace::close_gap(Address from, Address to) {
  const auto next = gaps_.upper_bound(from);
  if (next == gaps_.begin()) return;
  const auto [begin, end] = *std::prev(next);
  if (end <= from) return;
  GPUMEM_CHECK(to <= end, "what is mapped fits its gap");
  gaps_.erase(begin);
  if (begin < from) gaps_.emplace(begin, from);
  if (to < end) gaps_.emplace(to, end);
}

}  // namespace gpumem::allocator
