#include "daemon/core/request_queue.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {

void RequestQueue::add(RequestId request, Bytes least) {
  GPUMEM_CHECK(least < kMost, "an amount that can be asked for");
  if (entries_.size() == capacity_) make_room();
  if (!entries_.empty() && request <= entries_.back().request) return insert(request, least);
  entries_.push_back({request, least});
  if (size_++ == 0) front_ = entries_.back();
  if (!smallest_.empty()) update((entries_.size() - 1) / kBlock);
}

// One that waited at the broker before, and comes back after others.
void RequestQueue::insert(RequestId request, Bytes least) {
  const auto at = std::ranges::lower_bound(entries_, request, {}, &Entry::request);
  GPUMEM_CHECK(at->request != request, "a request comes once");
  const auto place = static_cast<std::uint32_t>(at - entries_.begin());
  entries_.insert(at, {request, least});
  ++size_;
  if (place <= first_) {
    first_ = place;
    front_ = entries_[place];
  }
  build_tree();
}

void RequestQueue::remove(RequestId request) {
  const auto found = std::ranges::lower_bound(entries_, request, {}, &Entry::request);
  GPUMEM_CHECK(found != entries_.end() && found->request == request, "only what is in the queue leaves it");
  GPUMEM_CHECK(found->least != kGone, "a request leaves once");
  found->least = kGone;
  if (--size_ == 0) {
    *this = {};
    return;
  }
  while (entries_[first_].least == kGone) ++first_;
  front_ = entries_[first_];
  if (!smallest_.empty()) update(static_cast<std::size_t>(found - entries_.begin()) / kBlock);
}

std::optional<RequestQueue::Entry> RequestQueue::first_at_most(Bytes bytes) const {
  if (size_ == 0) return std::nullopt;
  if (front_.least <= bytes) return front_;
  if (smallest_.empty()) return first_at_most(bytes, first_);
  if (smallest_[1] > bytes) return std::nullopt;
  const std::size_t blocks = smallest_.size() / 2;
  std::size_t node = 1;
  while (node < blocks) node = smallest_[2 * node] <= bytes ? 2 * node : 2 * node + 1;
  return first_at_most(bytes, (node - blocks) * kBlock);
}

std::optional<RequestQueue::Entry> RequestQueue::first_at_most(Bytes bytes, std::size_t from) const {
  for (std::size_t i = from; i < entries_.size(); ++i) {
    if (entries_[i].least <= bytes) return entries_[i];
  }
  return std::nullopt;
}

// Closes the gaps; doubles if there were few.
void RequestQueue::make_room() {
  std::vector<Entry> stay;
  for (capacity_ = 4; capacity_ < 2 * size_;) capacity_ *= 2;
  stay.reserve(capacity_);
  std::ranges::copy_if(entries_, std::back_inserter(stay),
                       [](const Entry& one) { return one.least != kGone; });
  entries_ = std::move(stay);
  first_ = 0;
  build_tree();
}

void RequestQueue::build_tree() {
  smallest_.clear();
  const std::size_t blocks = capacity_ / kBlock;
  if (blocks < 2) return;
  smallest_.assign(2 * blocks, kGone);
  for (std::size_t block = 0; block * kBlock < entries_.size(); ++block)
    smallest_[blocks + block] = smallest_of(block);
  for (std::size_t node = blocks; node-- > 1;)
    smallest_[node] = std::min(smallest_[2 * node], smallest_[2 * node + 1]);
}

void RequestQueue::update(std::size_t block) {
  std::size_t node = smallest_.size() / 2 + block;
  smallest_[node] = smallest_of(block);
  while (node > 1) {
    node /= 2;
    const Bytes smaller = std::min(smallest_[2 * node], smallest_[2 * node + 1]);
    if (smallest_[node] == smaller) return;
    smallest_[node] = smaller;
  }
}

Bytes RequestQueue::smallest_of(std::size_t block) const {
  Bytes smallest = kGone;
  const std::size_t end = std::min(entries_.size(), (block + 1) * kBlock);
  for (std::size_t i = block * kBlock; i < end; ++i) smallest = std::min(smallest, entries_[i].least);
  return smallest;
}

}  // namespace gpumem::core
