#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "gpumem/result.h"
#include "sim/control/control_file.h"
#include "sim/control/control_time.h"  // spend
#include "sim/machine/machine.h"

namespace gpumem::sim {

/// What is to happen to one call before it does anything. If several faults hit it: the delays together, the
/// oldest one's error.
struct Verdict {
  int error = 0;  ///< the driver's own number; 0: go on
  std::chrono::nanoseconds delay{};
  bool kill = false;
};

/// The control page (sim/control/faults.h, sim/control/costs.h) as one of the driver's libraries asks it.
/// Edits by any process take effect with the next call. Never blocks on an editor. Threads: any.
class Control {
 public:
  static constexpr int kCalls = 2048;

  /// Errors  as ControlFile::open.
  static Result<std::unique_ptr<Control>> open(const Machine& machine);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// Whether there is neither a fault nor a cost: then no call needs to be consulted. One load.
  bool is_idle() const { return file_->is_empty(); }

  /// Counts the call for the faults that it matches, and tells what is to happen to it.
  /// `call`  a number below kCalls that stands for `name` in this process always.
  Verdict consult(std::string_view name, int call);

  /// The cost of `call`, as of its last consult; zero before.
  std::chrono::nanoseconds base_cost(int call) const;
  /// And for its bytes; never wraps.
  std::chrono::nanoseconds cost_of_bytes(int call, std::uint64_t bytes) const;
  /// The cost of the bytes by the page as it is now; otherwise as consult.
  std::chrono::nanoseconds cost_of_bytes(std::string_view name, int call, std::uint64_t bytes);

 private:
  /// The rules of the page for one call when its state was `state`.
  struct Resolved {
    std::uint64_t state = 0;
    std::vector<layout::Rule> rules;
    Picoseconds base{};
    Picoseconds per_mib{};
  };

  explicit Control(std::unique_ptr<ControlFile> file) : file_(std::move(file)) {}
  const Resolved& resolve(std::string_view name, int call);

  const std::unique_ptr<ControlFile> file_;
  /// What the page says of each call. Replaced when the page is edited; the old ones are kept in `kept_`,
  /// since threads may be reading them: some hundred bytes for each call in use and edit.
  std::array<std::atomic<const Resolved*>, kCalls> resolved_{};
  Mutex mutex_;
  std::vector<std::unique_ptr<const Resolved>> kept_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::sim
