#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>

#include "daemon/core/words/types.h"

namespace gpumem::metrics {

/// Times, counted in buckets with fixed bounds.
class Histogram {
 public:
  /// Seconds; each bucket has what is at most its bound. One more bucket has all that is longer.
  static constexpr std::array<double, 13> kBounds{0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3600};

  /// Less than zero counts as zero.
  void observe(core::Duration time) {
    const double seconds = std::max(std::chrono::duration<double>(time).count(), 0.0);
    const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += seconds;
  }

  /// How many were at most kBounds[i], shorter ones included; the last: all.
  std::array<std::uint64_t, kBounds.size() + 1> cumulative() const {
    auto sums = counts_;
    std::partial_sum(sums.begin(), sums.end(), sums.begin());
    return sums;
  }
  double sum() const { return sum_; }  ///< seconds

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

}  // namespace gpumem::metrics
