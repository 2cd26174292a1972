#pragma once
#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "gpumem/bytes.h"

namespace gpumem::bench {

/// Device memory as cudaMalloc gives it to the reference allocators: in whole granules, each piece at an
/// address that no other piece joins. Counts what is taken, and makes nothing.
class Physical {
 public:
  explicit Physical(Bytes capacity, Bytes granularity = mebibytes(2))
      : capacity_(capacity), granularity_(granularity) {}

  /// The address of a piece of at least `bytes`, or zero: there is not so much left.
  std::uint64_t take(Bytes bytes) {
    const auto whole = bytes.rounded_up(granularity_);
    if (!whole || *whole > capacity_.minus(committed_)) return 0;
    const std::uint64_t at = next_;
    next_ += whole->count + granularity_.count;
    pieces_.emplace(at, *whole);
    committed_ += *whole;
    most_committed_ = std::max(most_committed_, committed_);
    return at;
  }
  void give_back(std::uint64_t at) {
    const auto piece = pieces_.find(at);
    committed_ -= piece->second;
    pieces_.erase(piece);
  }

  Bytes committed() const { return committed_; }
  Bytes most_committed() const { return most_committed_; }
  Bytes capacity() const { return capacity_; }

 private:
  Bytes capacity_, granularity_, committed_, most_committed_;
  std::uint64_t next_ = 1ULL << 40;
  std::unordered_map<std::uint64_t, Bytes> pieces_;
};

}  // namespace gpumem::bench
