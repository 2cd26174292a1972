#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

namespace gpumem {

inline constexpr std::uint64_t kMostBytes = std::numeric_limits<std::uint64_t>::max();

/// What would be more than kMostBytes is kMostBytes.
constexpr std::uint64_t capped_sum(std::uint64_t a, std::uint64_t b) {
  return a + std::min(b, kMostBytes - a);
}
constexpr std::uint64_t capped_product(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > kMostBytes / a ? kMostBytes : a * b;
}

}  // namespace gpumem
