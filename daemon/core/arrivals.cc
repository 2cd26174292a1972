#include "daemon/core/arrivals.h"

#include <algorithm>
#include <bit>

namespace gpumem::core {
namespace {

constexpr std::uint32_t kBits = 64;

constexpr std::uint64_t bit_of(std::uint32_t place) { return std::uint64_t{1} << (place % kBits); }

}  // namespace

std::size_t Arrivals::waiting_before(RequestId request, DeviceIndex device) const {
  if (capacity_ == 0) return 0;
  const auto place = std::ranges::lower_bound(requests_, request) - requests_.begin();
  return counters_[device].before(static_cast<std::uint32_t>(place));
}

void Arrivals::release(RequestId request) {
  const auto place = std::ranges::lower_bound(requests_, request) - requests_.begin();
  const auto at = static_cast<std::uint32_t>(place);
  if (at < requests_.size() && requests_[at] == request && slots_[at] == kKept) remove(at);
}

std::optional<std::uint32_t> Arrivals::fill(RequestId request, std::uint32_t slot) {
  if (requests_.empty() || requests_.back() < request) return std::nullopt;  // as nearly always
  const auto place = std::ranges::lower_bound(requests_, request) - requests_.begin();
  const auto at = static_cast<std::uint32_t>(place);
  if (requests_[at] != request || slots_[at] != kKept) return std::nullopt;
  slots_[at] = slot;
  mark_ = std::min<std::size_t>(mark_, at);
  return at;
}

void Arrivals::Counter::reset(std::size_t capacity) {
  words.assign(capacity / kBits + 1, 0);
  sums.assign(capacity / kBits + 1, 0);
  size = 0;
}

void Arrivals::Counter::set(std::uint32_t place) {
  words[place / kBits] |= bit_of(place);
  for (std::size_t i = place / kBits + 1; i < sums.size(); i += i & -i) ++sums[i];
  ++size;
}

void Arrivals::Counter::clear(std::uint32_t place) {
  words[place / kBits] &= ~bit_of(place);
  for (std::size_t i = place / kBits + 1; i < sums.size(); i += i & -i) --sums[i];
  --size;
}

std::size_t Arrivals::Counter::before(std::uint32_t place) const {
  std::size_t sum = static_cast<std::size_t>(std::popcount(words[place / kBits] & (bit_of(place) - 1)));
  for (std::size_t i = place / kBits; i > 0; i -= i & -i) sum += sums[i];
  return sum;
}

}  // namespace gpumem::core
