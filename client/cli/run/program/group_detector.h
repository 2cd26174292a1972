#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <utility>

namespace gpumem::cli {

/// Tells signals that were sent to the whole process group from those that were sent to this process alone,
/// which look the same to it: a child in the group, which blocks all signals, keeps what the group got
/// pending. The child ends with this process. Threads of the one that made it.
class GroupDetector {
 public:
  /// Of no group: no signal counts as its.
  static GroupDetector none() { return GroupDetector(-1); }
  /// Without room for a process, no signal counts as the group's.
  GroupDetector();
  ~GroupDetector();
  GroupDetector(GroupDetector&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), carried_(other.carried_) {}
  GroupDetector& operator=(GroupDetector&& other) noexcept {
    std::swap(pid_, other.pid_);
    std::swap(carried_, other.carried_);
    return *this;
  }

  /// Whether `signal`, which this process has received, was sent to its group, or has been cancelled since:
  /// one that stops by SIGCONT, and SIGCONT by one that stops. To be asked once for each. Of two that came
  /// before the question, both count if one did.
  bool has_received(int signal);
  /// Waits up to `patience` for a signal that the sender sends to one process after the other.
  bool receives_within(int signal, std::chrono::milliseconds patience);
  /// The detector was terminated by somebody else and has been waited for. False: `pid` is not the detector.
  bool note_end(pid_t pid);

 private:
  explicit GroupDetector(pid_t pid) : pid_(pid) {}

  pid_t pid_;
  std::uint64_t carried_ = 0;  ///< pending in the detector before, and not asked for yet
};

}  // namespace gpumem::cli
