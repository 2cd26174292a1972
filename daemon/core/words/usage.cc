#include "daemon/core/words/usage.h"

#include <cmath>

namespace gpumem::core {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr int kHalf = 64;

}  // namespace

void ByteTime::add(Bytes bytes, Duration time) {
  const auto nanoseconds = std::chrono::nanoseconds(time).count();
  Wide sum = (Wide{high_} << kHalf) | low_;
  sum += Wide{bytes.count} * static_cast<std::uint64_t>(nanoseconds);
  high_ = static_cast<std::uint64_t>(sum >> kHalf);
  low_ = static_cast<std::uint64_t>(sum);
}

double ByteTime::byte_seconds() const {
  constexpr double kNanoseconds = 1e9;
  return (std::ldexp(static_cast<double>(high_), kHalf) + static_cast<double>(low_)) / kNanoseconds;
}

}  // namespace gpumem::core
