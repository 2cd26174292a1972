#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/kubernetes/broker_client.h"
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

/// What pods ask for: `gpumem.dev/memory-256Mi` for units of 256 MiB.
std::string resource_name(const std::string& domain, Bytes unit);

/// How many whole units the broker lends of `device`.
std::uint64_t unit_count(const Device& device, Bytes unit);

/// How many of `units` are of each device, by UUID. Errors  kInvalidArgument: one is no unit.
Result<std::map<std::string, std::uint64_t>> units_by_device(const UnitSet& units);

/// What to take `size` units from: `required`, and then as few devices as can be. Of those that have room for
/// all, the fullest, so that the others keep room for more; if none has, the emptiest first. `available`
/// includes `required`. Fewer than `size`: there are no more. What is no unit is passed over.
std::vector<std::string> preferred_units(const UnitSet& available, const UnitSet& required, std::size_t size);

}  // namespace gpumem::kubernetes
