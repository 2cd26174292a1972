#pragma once
#include <cstdint>

namespace gpumem::bench {

/// The same numbers in every run.
class Shuffle {
 public:
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  std::uint64_t below(std::uint64_t end) { return next() % end; }

 private:
  std::uint64_t state_ = 88'172'645'463'325'252;
};

}  // namespace gpumem::bench
