#include "daemon/kubernetes/device_plugin/offered_units.h"

#include <algorithm>

#include "daemon/kubernetes/quantity.h"

namespace gpumem::kubernetes {
namespace {

constexpr std::uint64_t kMostUnits = 32'768;  // the kubelet takes a list of 4 MiB

}  // namespace

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
