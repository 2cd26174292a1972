#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gpumem::sim {

/// The handles of one kind of object. A new object gets the handle of the one that was destroyed last, as the
/// real driver's handles are addresses of objects. Threads: one at a time.
class ReusedHandles {
 public:
  /// `base`  looks like no host pointer and no small number.
  explicit ReusedHandles(std::uint64_t base) : last_(base) {}

  std::uint64_t take() {
    if (free_.empty()) return last_ += kStep;
    const std::uint64_t handle = free_.back();
    free_.pop_back();
    return handle;
  }
  void give_back(std::uint64_t handle) { free_.push_back(handle); }

  /// Ends the process if the object with `handle` was destroyed: the real driver reads memory that has
  /// another use by then. No effect on a value that never was a handle.
  void check_not_destroyed(std::uint64_t handle, const char* kind) const {
    if (std::ranges::find(free_, handle) == free_.end()) return;
    std::fprintf(
        stderr,
        "gpumem-sim: a call names %s 0x%llx, which was destroyed; on a GPU its handle may be another "
        "one's by then. End the use of it before it is destroyed\n",
        kind, static_cast<unsigned long long>(handle));
    std::abort();
  }

 private:
  static constexpr std::uint64_t kStep = 16;
  std::uint64_t last_;
  std::vector<std::uint64_t> free_;
};

}  // namespace gpumem::sim
