#include "daemon/kubernetes/device_plugin/units.h"

#include <algorithm>
#include <charconv>

#include "daemon/kubernetes/quantity.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::string_view kSeparator = "::";
constexpr std::size_t kLongestId = 63;  // bytes, says the API

using UnitsOfDevice = std::vector<std::string>;

// By UUID, in the order of their numbers.
std::map<std::string, UnitsOfDevice> grouped(const UnitSet& units, const UnitSet& without) {
  std::map<std::string, std::map<std::uint64_t, std::string>> ordered;
  for (const std::string& id : units) {
    const auto unit = parse_unit(id);
    if (unit && without.count(id) == 0) ordered[unit->uuid].emplace(unit->number, id);
  }
  std::map<std::string, UnitsOfDevice> groups;
  for (auto& [uuid, numbers] : ordered)
    for (auto& [number, id] : numbers) groups[uuid].push_back(std::move(id));
  return groups;
}

// Devices that `required` are of come first: a container that has begun on one stays there.
struct Candidate {
  bool begun = false;
  UnitsOfDevice units;
};

bool comes_before(const Candidate& a, const Candidate& b, std::size_t size) {
  if (a.begun != b.begun) return a.begun;
  const bool holds_a = a.units.size() >= size;
  const bool holds_b = b.units.size() >= size;
  if (holds_a != holds_b) return holds_a;
  return holds_a ? a.units.size() < b.units.size() : a.units.size() > b.units.size();
}

}  // namespace

Result<Unit> parse_unit(const std::string& id) {
  const Error wrong{Code::kInvalidArgument,
                    "\"" + id.substr(0, kLongestId) + "\" is no unit of this plugin, such as GPU-...::17"};
  const std::size_t at = id.rfind(kSeparator);
  if (at == std::string::npos || at == 0 || id.size() > kLongestId) return wrong;
  Unit unit{.uuid = id.substr(0, at)};
  const char* end = id.data() + id.size();
  const auto [read, error] = std::from_chars(id.data() + at + kSeparator.size(), end, unit.number);
  if (error != std::errc{} || read != end || unit.id() != id) return wrong;
  return unit;
}

std::string resource_name(const std::string& domain, Bytes unit) {
  return domain + "/memory-" + quantity_text(unit);
}

std::uint64_t unit_count(const Device& device, Bytes unit) { return device.pool.count / unit.count; }

Result<std::map<std::string, std::uint64_t>> units_by_device(const UnitSet& units) {
  std::map<std::string, std::uint64_t> counts;
  for (const std::string& id : units) {
    auto unit = parse_unit(id);
    if (!unit) return unit.error();
    ++counts[unit->uuid];
  }
  return counts;
}

std::vector<std::string> preferred_units(const UnitSet& available, const UnitSet& required,
                                         std::size_t size) {
  std::vector<std::string> chosen(required.begin(), required.end());
  if (chosen.size() >= size) return chosen;
  const std::map<std::string, UnitsOfDevice> begun = grouped(required, {});
  std::vector<Candidate> candidates;
  for (auto& [uuid, units] : grouped(available, required))
    candidates.push_back({.begun = begun.count(uuid) != 0, .units = units});
  const std::size_t missing = size - chosen.size();
  std::stable_sort(candidates.begin(), candidates.end(),
                   [missing](const Candidate& a, const Candidate& b) { return comes_before(a, b, missing); });
  for (const Candidate& one : candidates) {
    for (const std::string& id : one.units) {
      if (chosen.size() == size) return chosen;
      chosen.push_back(id);
    }
  }
  return chosen;
}

}  // namespace gpumem::kubernetes
