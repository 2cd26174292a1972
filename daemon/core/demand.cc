#include "daemon/core/demand.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {

void Demand::note(Bytes size, std::size_t count) {
  if (sum_ >= window_) {
    before_ = std::exchange(now_, {});
    sum_ = {};
  }
  now_[size] += count;
  sum_ += {size.count * count};
}

std::size_t Demand::of(Bytes size) const {
  const auto in = [size](const Counts& counts) {
    const auto found = counts.find(size);
    return found == counts.end() ? std::size_t{0} : found->second;
  };
  return std::max(in(now_), in(before_));
}

std::vector<Bytes> Demand::sizes() const {
  std::vector<Bytes> sizes;
  for (const auto& [size, count] : now_) sizes.push_back(size);
  for (const auto& [size, count] : before_)
    if (!now_.contains(size)) sizes.push_back(size);
  return sizes;
}

}  // namespace gpumem::core
