#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <utility>

#include "client/connection.h"
#include "client/lane.h"

namespace gpumem::client {

/// How long a region is waited for.
class RegionWait {
 public:
  explicit RegionWait(std::chrono::milliseconds time)
      : time_(std::clamp(time, std::chrono::milliseconds::zero(), kLongest)) {}

  std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(time_).count());
  }
  GrowTerms terms(const Connection& connection, std::stop_token stop) const {
    const Lane::Clock::time_point now = Lane::Clock::now();
    return {now + connection.timeout(), std::move(stop), now + time_ + connection.timeout()};
  }

 private:
  /// Longer than any real wait, and short enough to be added to a point in time.
  static constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  std::chrono::milliseconds time_;
};

}  // namespace gpumem::client
