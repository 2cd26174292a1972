#include "daemon/core/words/usage.h"

#include <algorithm>
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

void Spending::advance(TimePoint now) {
  if (now <= since) return;
  sum.add(level, now - since);
  since = now;
}

bool Spending::set_level(Bytes bytes, TimePoint now) {
  constexpr Duration kRecordInterval = std::chrono::seconds(10);
  if (bytes == level) return false;
  advance(now);
  level = bytes;
  peak = std::max(peak, bytes);
  if (now - recorded < kRecordInterval) return false;
  recorded = now;
  return true;
}

double ByteTime::byte_seconds() const {
  constexpr double kNanoseconds = 1e9;
  return (std::ldexp(static_cast<double>(high_), kHalf) + static_cast<double>(low_)) / kNanoseconds;
}

}  // namespace gpumem::core
