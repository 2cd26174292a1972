#include "client/allocator/idle_tracker.h"

#include <algorithm>

namespace gpumem::allocator {

std::uint64_t IdleTracker::tick(Clock::time_point now, std::uint64_t low_water) {
  next_ = now + tick_;
  low_[at_++ % low_.size()] = low_water;
  return at_ < low_.size() ? 0 : *std::ranges::min_element(low_);
}

}  // namespace gpumem::allocator
