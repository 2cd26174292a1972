#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "daemon/kubernetes/claims/broker_client.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// One of the equal amounts of a device's memory that the kubelet counts, by what it calls a device.
struct Unit {
  std::string uuid;  ///< of the device
  std::uint64_t number = 0;

  /// As the kubelet names it: `UUID::NUMBER`.
  std::string id() const { return uuid + "::" + std::to_string(number); }
};

/// Reads a unit's name. Errors  kInvalidArgument: it is none; names it.
Result<Unit> parse_unit(const std::string& id);

/// Names of units, each once.
using UnitSet = std::set<std::string>;

/// The resource that pods request: `gpumem.dev/memory-256Mi` for units of 256 MiB.
std::string resource_name(const std::string& domain, Bytes unit);

/// How many whole units the broker lends of `device`.
std::uint64_t unit_count(const Device& device, Bytes unit);

/// How many of `units` are of each device, by UUID. Errors  kInvalidArgument: one is no unit.
Result<std::map<std::string, std::uint64_t>> units_by_device(const UnitSet& units);

/// Chooses `size` units: `required`, then units of as few devices as possible. If several devices have room
/// for all, the fullest is taken, so that the others keep room for larger requests. If none has, the emptiest
/// comes first. `available` includes `required`. Returns fewer than `size` if there are no more. Names that
/// are not units are skipped.
std::vector<std::string> preferred_units(const UnitSet& available, const UnitSet& required, std::size_t size);

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
