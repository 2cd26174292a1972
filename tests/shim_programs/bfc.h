#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "tests/shim_programs/program.h"

namespace gpumem::shim_programs {

/// How the allocator of TensorFlow and XLA takes memory from the driver, one region after the other.
/// After BFCAllocator::Extend, tensorflow and openxla/xla: xla/tsl/framework/bfc_allocator.cc.
class Bfc {
 public:
  /// `allocate`  the driver's; 0: out of memory.
  using Allocate = std::function<CUdeviceptr(std::uint64_t bytes)>;
  struct Region {
    CUdeviceptr at;
    std::uint64_t bytes;
  };

  Bfc(Allocate allocate, std::uint64_t limit, bool grows)
      : allocate_(std::move(allocate)), limit_(limit), next_(grows ? 2 * kMiB : limit / kUnit * kUnit) {}

  /// Takes a region that has room for `bytes`. False: there is none.
  bool extend(std::uint64_t bytes) {
    const std::uint64_t available = (limit_ - taken_) / kUnit * kUnit;
    if (bytes > available) return false;
    bool has_grown = false;
    for (; bytes > next_; has_grown = true) next_ *= 2;
    std::uint64_t asked = std::min(next_, available);
    CUdeviceptr at = ask(asked);
    while (at == 0) {
      asked = rounded(static_cast<std::uint64_t>(static_cast<double>(asked) * 0.9));
      if (asked < bytes) return false;
      at = ask(asked);
    }
    if (!has_grown) next_ *= 2;
    taken_ += asked;
    regions_.push_back({at, asked});
    return true;
  }

  const std::vector<Region>& regions() const { return regions_; }
  std::uint64_t taken() const { return taken_; }
  /// How often the driver was asked.
  int requests() const { return requests_; }

 private:
  static constexpr std::uint64_t kUnit = 256;
  static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }
  CUdeviceptr ask(std::uint64_t bytes) {
    ++requests_;
    return allocate_(bytes);
  }

  const Allocate allocate_;
  const std::uint64_t limit_;
  std::uint64_t next_;
  std::uint64_t taken_ = 0;
  int requests_ = 0;
  std::vector<Region> regions_;
};

}  // namespace gpumem::shim_programs
