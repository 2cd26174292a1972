#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace gpumem::bench {

/// Draws that are the same with every standard library, whose own distributions differ.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  double uniform() { return (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53; }
  bool chance(double part) { return uniform() < part; }
  /// From 0 to `end` - 1.
  std::uint64_t below(std::uint64_t end) {
    return std::min(end - 1, static_cast<std::uint64_t>(uniform() * static_cast<double>(end)));
  }
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }

 private:
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

  std::mt19937_64 engine_;
};

}  // namespace gpumem::bench
