#include "client/demo/digest.h"

#include <algorithm>
#include <cstring>

namespace gpumem::demo {

void Digest::add(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t taken = std::min(sizeof word, bytes.size());
    std::memcpy(&word, bytes.data(), taken);
    state_ = (state_ ^ word) * kPrime;
    state_ ^= state_ >> 29;
    bytes = bytes.subspan(taken);
  }
}

}  // namespace gpumem::demo
