#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

#include "gpumem/bytes.h"

namespace gpumem::allocator {

/// Notices that a program allocates blocks of one size and frees none. Such a program gets memory for several
/// blocks in one extent, because the broker makes and exports extents one after the other, whatever their
/// size. It takes at most a part of the committed memory ahead: an extent with a block cannot go back.
/// Threads  under the allocator's lock.
class SteadyGrowth {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kSame = 3;                   ///< growths that tell
  static constexpr std::uint64_t kPart = 64;        ///< of the committed memory, at most
  static constexpr Bytes kMost = mebibytes(256);    ///< at one time
  static constexpr std::chrono::seconds kPause{2};  ///< between growths that do not follow each other

  /// How much to request where `missing` bytes are missing: a multiple of them.
  std::uint64_t bytes_for(std::uint64_t missing, std::uint64_t committed, Clock::time_point now) const {
    if (count_ < kSame || !follows(missing, now) || missing == 0) return missing;
    const std::uint64_t most = std::min(committed / kPart, kMost.count);
    return missing * std::max<std::uint64_t>(most / missing, 1);
  }
  /// Memory was lent where `missing` bytes were missing. A request that was refused is no growth.
  void grew(std::uint64_t missing, Clock::time_point now) {
    count_ = follows(missing, now) ? count_ + 1 : 1;
    missing_ = missing;
    last_ = now;
  }

 private:
  bool follows(std::uint64_t missing, Clock::time_point now) const {
    return missing == missing_ && now - last_ < kPause;
  }

  std::uint64_t missing_ = 0;
  Clock::time_point last_{};
  int count_ = 0;
};

}  // namespace gpumem::allocator
