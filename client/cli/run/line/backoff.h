#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace gpumem::cli {

/// The pauses between questions to the broker: each is up to twice as long as the one before. Processes that
/// begin together do not ask together, because each pause ends at a random moment of its second half.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;

  Backoff(milliseconds first, milliseconds longest) : first_(first), longest_(longest) {}

  Clock::time_point next() {
    const auto end = Clock::now() + in_second_half(pause_);
    pause_ = std::min(2 * pause_, longest_);
    return end;
  }
  Clock::time_point next_of(milliseconds pause) { return Clock::now() + in_second_half(pause); }
  void begin_anew() { pause_ = first_; }

 private:
  milliseconds in_second_half(milliseconds pause) {
    return milliseconds(std::uniform_int_distribution(pause.count() / 2, pause.count())(random_));
  }

  milliseconds first_, longest_;
  milliseconds pause_ = first_;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace gpumem::cli
