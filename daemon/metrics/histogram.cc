#include "daemon/metrics/histogram.h"

#include <algorithm>
#include <numeric>

namespace gpumem::metrics {

void Histogram::observe(core::Duration time) {
  const double seconds = std::max(std::chrono::duration<double>(time).count(), 0.0);
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += seconds;
}

std::array<std::uint64_t, Histogram::kBounds.size() + 1> Histogram::cumulative() const {
  auto sums = counts_;
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  return sums;
}

}  // namespace gpumem::metrics
