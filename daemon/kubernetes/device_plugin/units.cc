#include "daemon/kubernetes/device_plugin/units.h"

#include <algorithm>

#include "base/text/number.h"
#include "daemon/kubernetes/http/api_values.h"

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

constexpr std::uint64_t kMostUnits = 32'768;  // the kubelet takes a list of 4 MiB

}  // namespace

Result<Unit> parse_unit(const std::string& id) {
  const Error wrong{Code::kInvalidArgument,
                    "\"" + id.substr(0, kLongestId) + "\" is no unit of this plugin, such as GPU-...::17"};
  const std::size_t at = id.rfind(kSeparator);
  if (at == std::string::npos || at == 0 || id.size() > kLongestId) return wrong;
  Unit unit{.uuid = id.substr(0, at)};
  const auto number =
      whole_number<decltype(unit.number)>(std::string_view(id).substr(at + kSeparator.size()));
  unit.number = number.value_or(0);
  if (!number || unit.id() != id) return wrong;
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

void OfferedUnits::replace(Devices devices) {
  if (devices == devices_) return;
  devices_ = std::move(devices);
  ++told_;
  changed_.notify_all();
}

Result<void> OfferedUnits::set_lent(const std::vector<Device>& devices) {
  const MutexLock lock(mutex_);
  Devices fresh = devices_;
  for (OfferedDevice& one : fresh) one.healthy = false;
  for (const Device& device : devices) {
    const OfferedDevice lent{device.uuid, unit_count(device, unit_), true};
    const auto known = std::find_if(fresh.begin(), fresh.end(),
                                    [&](const OfferedDevice& one) { return one.uuid == lent.uuid; });
    if (known != fresh.end())
      *known = lent;
    else
      fresh.push_back(lent);
  }
  std::uint64_t units = 0;
  for (const OfferedDevice& one : fresh) units += one.units;
  if (units > kMostUnits)
    return Error{Code::kInvalidArgument, "the devices have " + std::to_string(units) + " units of " +
                                             quantity_text(unit_) + ", and the kubelet takes " +
                                             std::to_string(kMostUnits) + " at most: use a larger --unit"};
  replace(std::move(fresh));
  return {};
}

void OfferedUnits::set_away() {
  const MutexLock lock(mutex_);
  Devices fresh = devices_;
  for (OfferedDevice& one : fresh) one.healthy = false;
  replace(std::move(fresh));
}

void OfferedUnits::tell_again() {
  const MutexLock lock(mutex_);
  if (told_ == 0) return;
  ++told_;
  changed_.notify_all();
}

OfferedUnits::Devices OfferedUnits::devices() {
  const MutexLock lock(mutex_);
  return devices_;
}

Result<void> OfferedUnits::check(const UnitSet& units) {
  const Devices offered = devices();
  for (const std::string& id : units) {
    const auto unit = parse_unit(id);
    if (!unit) return unit.error();
    const bool is_offered = std::any_of(offered.begin(), offered.end(), [&](const OfferedDevice& one) {
      return one.uuid == unit->uuid && unit->number < one.units;
    });
    if (!is_offered)
      return Error{Code::kInvalidArgument,
                   id + " is not offered by this node; delete the pod to have it scheduled anew"};
  }
  return {};
}

std::optional<OfferedUnits::Devices> OfferedUnits::next(std::uint64_t& heard,
                                                        std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  const MutexLock lock(mutex_);
  while (!stopped_ && told_ == heard && std::chrono::steady_clock::now() < end)
    changed_.wait_until(mutex_, end);
  if (told_ == heard) return {};
  heard = told_;
  return devices_;
}

void OfferedUnits::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool OfferedUnits::is_stopped() {
  const MutexLock lock(mutex_);
  return stopped_;
}

void OfferedUnits::add_listener(int by) {
  const MutexLock lock(mutex_);
  listeners_ += by;
}

int OfferedUnits::listeners() {
  const MutexLock lock(mutex_);
  return listeners_;
}

}  // namespace gpumem::kubernetes
