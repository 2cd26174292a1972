#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gpumem/bytes.h"

namespace gpumem::allocator {

/// Notices that a program grows steadily: its growths follow each other. Such a program gets memory ahead, at
/// most a part of the committed memory, and makes fewer requests. If blocks of one size lack memory, several
/// of them get one extent: the broker makes and exports extents one by one, whatever their size.
/// Threads  under the allocator's lock.
class SteadyGrowth {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kInARow = 3;                 ///< growths that tell
  static constexpr std::uint64_t kPart = 64;        ///< of the committed memory, at most
  static constexpr Bytes kMost = mebibytes(256);    ///< at one time
  static constexpr std::chrono::seconds kPause{2};  ///< between growths that do not follow each other

  /// How much to request where `missing` bytes are missing. For blocks of one size, a multiple of them. Else
  /// as much, or a multiple of `unit` that is more.
  std::uint64_t bytes_for(std::uint64_t missing, std::uint64_t committed, std::uint64_t unit,
                          Clock::time_point now) const {
    if (in_a_row_ < kInARow || !follows(now) || missing == 0) return missing;
    const std::uint64_t most = std::min(committed / kPart, kMost.count);
    if (is_of_one_size(missing, now)) return missing * std::max<std::uint64_t>(most / missing, 1);
    return std::max(missing, most / unit * unit);
  }
  /// Whether the last growths lacked as much as this one.
  bool is_of_one_size(std::uint64_t missing, Clock::time_point now) const {
    return same_ >= kInARow && follows(now) && missing == missing_;
  }
  /// Memory was lent where `missing` bytes were missing. A request that was refused is no growth.
  void grew(std::uint64_t missing, Clock::time_point now) {
    in_a_row_ = follows(now) ? in_a_row_ + 1 : 1;
    same_ = follows(now) && missing == missing_ ? same_ + 1 : 1;
    missing_ = missing;
    last_ = now;
  }

 private:
  bool follows(Clock::time_point now) const { return now - last_ < kPause; }

  std::uint64_t missing_ = 0;
  Clock::time_point last_{};
  int in_a_row_ = 0;
  int same_ = 0;
};

}  // namespace gpumem::allocator
