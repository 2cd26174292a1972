#include "daemon/core/memory/size_classes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpumem::core {

SizeClasses::SizeClasses(Bytes granularity) {
  std::uint64_t size = granularity.count;
  for (Bytes& one : sizes_) {
    one = {size};
    size *= kStep;
  }
}

Bytes SizeClasses::largest_within(Bytes bytes) const {
  const auto larger = std::ranges::upper_bound(sizes_, bytes);
  return larger == sizes_.begin() ? granularity() : *std::prev(larger);
}

std::vector<Bytes> SizeClasses::split(Bytes bytes) const {
  GPUMEM_CHECK(bytes == bytes.rounded_down(granularity()), "multiple of the granularity");
  std::vector<Bytes> parts;
  for (std::size_t i = kCount; i-- > 0;) {
    for (; bytes >= sizes_[i]; bytes -= sizes_[i]) parts.push_back(sizes_[i]);
  }
  return parts;
}

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
