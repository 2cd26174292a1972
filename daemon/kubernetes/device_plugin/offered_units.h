#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/kubernetes/device_plugin/units.h"

namespace gpumem::kubernetes {

/// A device as it is offered to the kubelet: its units 0 to `units` - 1.
struct OfferedDevice {
  std::string uuid;
  std::uint64_t units = 0;
  bool healthy = false;
  bool operator==(const OfferedDevice&) const = default;
};

/// The list of units that the kubelet hears of, and hears again when it changes. A device that has been
/// offered stays, without health while the broker does not lend it. Threads  any.
class OfferedUnits {
 public:
  using Devices = std::vector<OfferedDevice>;

  explicit OfferedUnits(Bytes unit) : unit_(unit) {}

  /// What the broker lends now. Errors  kInvalidArgument: they have more units than the kubelet takes;
  /// nothing has changed.
  Result<void> set_lent(const std::vector<Device>& devices);
  /// The broker is away.
  void set_away();

  /// Has every listener told the list again, as it is. The kubelet writes its checkpoint after each list.
  void tell_again();

  Devices devices();
  /// Whether all of `units` are offered. Errors  kInvalidArgument: one is not; names it.
  Result<void> check(const UnitSet& units);

  /// The list, if it was changed or is to be told again since `heard` (0: never), which becomes what it is
  /// now. Waits for that, for `patience` at most. Nothing: there is nothing new. Blocks.
  std::optional<Devices> next(std::uint64_t& heard, std::chrono::milliseconds patience);

  /// The end: nobody waits for a list any more.
  void stop();
  bool is_stopped();

  /// How many listen: the kubelet does as long as it knows the plugin.
  void add_listener(int by);
  int listeners();

 private:
  void replace(Devices devices) GPUMEM_REQUIRES(mutex_);

  Bytes unit_;
  Mutex mutex_;
  Condition changed_;
  Devices devices_ GPUMEM_GUARDED_BY(mutex_);
  std::uint64_t told_ GPUMEM_GUARDED_BY(mutex_) = 0;  // rises with each list; 0: no device was ever known
  int listeners_ GPUMEM_GUARDED_BY(mutex_) = 0;
  bool stopped_ GPUMEM_GUARDED_BY(mutex_) = false;
};

}  // namespace gpumem::kubernetes
