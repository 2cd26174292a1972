#include "daemon/core/size_classes.h"

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

}  // namespace gpumem::core
