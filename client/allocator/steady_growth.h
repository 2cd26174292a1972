#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "client/allocator/span.h"
#include "gpumem/bytes.h"

namespace gpumem::allocator {

/// Notices that a program allocates blocks of one size and frees none. Such a program gets each growth in one
/// extent, for several blocks if these are little beside its memory. The broker makes and exports extents one
/// after the other, whatever their size, and has some of each of its classes ready: `unit` times a power of
/// four. A program takes at most a part of the committed memory ahead, because an extent with a block cannot
/// go back.
/// Threads  under the allocator's lock.
class SteadyGrowth {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSame = 3;                   ///< growths that tell
  static constexpr std::uint64_t kPart = 32;        ///< of the committed memory, at most
  static constexpr Bytes kMost = mebibytes(128);    ///< at one time
  static constexpr std::chrono::seconds kPause{2};  ///< between growths that do not follow each other

  explicit SteadyGrowth(std::uint64_t unit) : unit_(unit) {}

  /// The extent to request for a block of `bytes` that lacks `missing`. Nothing: the program does not grow
  /// steadily, or in large blocks.
  std::optional<std::uint64_t> extent_for(std::uint64_t bytes, std::uint64_t missing, std::uint64_t committed,
                                          Clock::time_point now) const {
    if (count_ < kSame || !follows(bytes, now) || missing > kMost.count) return std::nullopt;
    const std::uint64_t most = std::min(committed / kPart, kMost.count);
    std::uint64_t extent = unit_;
    while (4 * extent <= most) extent *= 4;
    return std::max(extent, missing);
  }
  /// Memory was lent for a block of `bytes`. A request that was refused is no growth.
  void grew(std::uint64_t bytes, Clock::time_point now) {
    count_ = follows(bytes, now) ? count_ + 1 : 1;
    size_ = rounded_up(bytes, unit_);
    last_ = now;
  }

 private:
  bool follows(std::uint64_t bytes, Clock::time_point now) const {
    return rounded_up(bytes, unit_) == size_ && now - last_ < kPause;
  }

  const std::uint64_t unit_;
  std::uint64_t size_ = 0;  ///< of the block, in whole units
  Clock::time_point last_{};
  int count_ = 0;
};

}  // namespace gpumem::allocator
