#include "daemon/core/line.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {

void Line::add(RequestId request, Bytes least) {
  GPUMEM_CHECK(least.count < kGone - 1, "an amount that can be asked for");
  GPUMEM_CHECK(requests_.empty() || requests_.back() < request, "requests come in the order of their ids");
  if (requests_.size() == capacity()) make_room();
  requests_.push_back(request);
  set(requests_.size() - 1, least.count);
  ++size_;
}

void Line::remove(RequestId request) {
  const auto found = std::ranges::lower_bound(requests_, request);
  GPUMEM_CHECK(found != requests_.end() && *found == request, "only what is in the line leaves it");
  const auto place = static_cast<std::size_t>(found - requests_.begin());
  GPUMEM_CHECK(smallest_[capacity() + place] != kGone, "a request leaves once");
  set(place, kGone);
  if (--size_ == 0) {
    requests_.clear();
    smallest_.clear();
  }
}

std::optional<Line::Entry> Line::first_at_most(Bytes bytes, RequestId after) const {
  if (size_ == 0 || smallest_[1] > bytes.count) return std::nullopt;
  std::size_t node = 1;
  if (after) {
    // From the first place behind `after`: up to where a subtree on the right has one, then down into it.
    const auto next = std::ranges::upper_bound(requests_, after);
    if (next == requests_.end()) return std::nullopt;
    node = capacity() + static_cast<std::size_t>(next - requests_.begin());
    while (smallest_[node] > bytes.count) {
      while (node % 2 == 1) node /= 2;  // a right child, or the root: nothing more to its right here
      if (node == 0) return std::nullopt;
      ++node;
    }
  }
  while (node < capacity()) node = smallest_[2 * node] <= bytes.count ? 2 * node : 2 * node + 1;
  return Entry{requests_[node - capacity()], {smallest_[node]}};
}

void Line::set(std::size_t place, std::uint64_t least) {
  std::size_t node = capacity() + place;
  smallest_[node] = least;
  while (node > 1) {
    node /= 2;
    const std::uint64_t smaller = std::min(smallest_[2 * node], smallest_[2 * node + 1]);
    if (smallest_[node] == smaller) return;
    smallest_[node] = smaller;
  }
}

// Closes the gaps; doubles if there were few.
void Line::make_room() {
  std::vector<Entry> stay;
  stay.reserve(size_);
  for (std::size_t place = 0; place < requests_.size(); ++place) {
    if (const std::uint64_t least = smallest_[capacity() + place]; least != kGone)
      stay.push_back({requests_[place], {least}});
  }
  std::size_t capacity = 1;
  while (capacity < 2 * stay.size()) capacity *= 2;
  smallest_.assign(2 * capacity, kGone);
  requests_.clear();
  for (const Entry& entry : stay) {
    requests_.push_back(entry.request);
    smallest_[capacity + requests_.size() - 1] = entry.least.count;
  }
  for (std::size_t node = capacity; node-- > 1;)
    smallest_[node] = std::min(smallest_[2 * node], smallest_[2 * node + 1]);
}

}  // namespace gpumem::core
