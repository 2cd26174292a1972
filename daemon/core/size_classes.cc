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

std::size_t SizeClasses::index_of(Bytes size) const {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (sizes_[i] == size) return i;
  }
  check_failed("index_of", "every extent's size is one of the classes", __FILE__, __LINE__);
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
