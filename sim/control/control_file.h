#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gpumem/result.h"
#include "sim/control/control_layout.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {

/// What the control page says at one moment.
struct ControlContents {
  std::uint64_t state = 0;
  std::vector<layout::Rule> rules;
  std::vector<layout::Cost> costs;
};

/// The machine's control page, mapped. Readers never block; editors take turns, and one that is killed
/// neither blocks the next one nor leaves half an edit. Threads: any, in any number of processes.
class ControlFile {
 public:
  /// Maps the page, making it first if it is not there.
  /// Errors  kInternal: the system refused, or the file is damaged or of another version.
  static Result<std::unique_ptr<ControlFile>> open(const Machine& machine);
  ~ControlFile();
  ControlFile(const ControlFile&) = delete;
  ControlFile& operator=(const ControlFile&) = delete;

  /// Another number after every edit. One load.
  std::uint64_t state(std::memory_order order = std::memory_order_relaxed) const {
    return std::atomic_ref(shared_->state).load(order);
  }
  /// Whether there is neither a rule nor a cost. One load.
  bool is_empty() const { return (state() & layout::kStateActive) == 0; }

  ControlContents read() const;
  /// The counter of a rule; any number is safe.
  layout::Counter& counter(std::uint32_t index) const { return shared_->counters[index % layout::kCounters]; }

  /// Puts in force what `change` makes of the contents, all of it or, if it gives an error, nothing.
  /// Errors  those of `change`; kResourceExhausted: more rules or costs than the page holds.
  Result<void> edit(const std::function<Result<void>(ControlContents&)>& change);
  /// Gives a new rule a counter, at zero, that no rule of `contents` has. Within edit() only.
  std::uint32_t take_counter(const ControlContents& contents);

  /// The raw page, for tests of what a killed editor leaves.
  layout::Control& raw() { return *shared_; }

 private:
  explicit ControlFile(layout::Control* shared) : shared_(shared) {}

  class Lock;
  void publish(const ControlContents& contents);

  layout::Control* const shared_;
};

}  // namespace gpumem::sim
