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

}  // namespace gpumem::kubernetes
