#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace gpumem::bench {

using Clock = std::chrono::steady_clock;

/// Durations of one thing, measured many times. Medians, since a shared machine has long tails.
class Samples {
 public:
  void add(Clock::duration one) {
    microseconds_.push_back(std::chrono::duration<double, std::micro>(one).count());
  }

  /// The value that the part `share` of the samples does not pass; 0 without samples.
  double quantile_us(double share) const {
    if (microseconds_.empty()) return 0;
    std::vector<double> sorted = microseconds_;
    std::ranges::sort(sorted);
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  double median_us() const { return quantile_us(0.5); }
  std::size_t count() const { return microseconds_.size(); }

 private:
  std::vector<double> microseconds_;
};

inline double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// What `act` takes.
template <class Act>
Clock::duration timed(Act&& act) {
  const auto start = Clock::now();
  act();
  return Clock::now() - start;
}

}  // namespace gpumem::bench
