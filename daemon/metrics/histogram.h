#pragma once
#include <array>
#include <cstdint>

#include "daemon/core/types.h"

namespace gpumem::metrics {

/// Times, counted in buckets with fixed bounds.
class Histogram {
 public:
  /// Seconds; each bucket has what is at most its bound. One more bucket has all that is longer.
  static constexpr std::array<double, 13> kBounds{0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3600};

  /// Less than zero counts as zero.
  void observe(core::Duration time);

  /// How many were at most kBounds[i], shorter ones included; the last: all.
  std::array<std::uint64_t, kBounds.size() + 1> cumulative() const;
  double sum() const { return sum_; }  ///< seconds

 private:
  std::array<std::uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

}  // namespace gpumem::metrics
