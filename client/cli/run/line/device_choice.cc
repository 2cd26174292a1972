#include "client/cli/run/line/device_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "client/cli/monitor/monitor.h"

namespace gpumem::cli {

DeviceChoice::DeviceChoice(const std::vector<DeviceUsage>& devices, const std::optional<Amount>& limit,
                           bool is_in_job) {
  Bytes largest;
  for (const DeviceUsage& one : devices) {
    const Bytes bytes = std::min(limit ? limit->of(most_of(one)) : Bytes{1}, most_of(one));
    largest = std::max(largest, bytes);
    devices_.push_back({&one, bytes});
  }
  const bool is_absolute = !limit || limit->kind() == Amount::Kind::kAbsolute;
  if (is_absolute) std::erase_if(devices_, [&](const Device& one) { return one.bytes < largest; });
  // In a job, what it has reserved comes first.
  std::ranges::stable_sort(devices_, std::ranges::greater(), [&](const Device& one) {
    return std::pair(is_in_job && !one.usage->charged.is_zero(), one.usage->available);
  });
}

std::vector<std::string> DeviceChoice::with_room() const {
  std::vector<std::string> uuids;
  for (const Device& one : devices_) {
    if (one.usage->available >= one.bytes) uuids.push_back(one.usage->device);
  }
  return uuids;
}

std::string DeviceChoice::with_shortest_line(const std::filesystem::path& runtime_folder) const {
  std::map<std::string, std::uint64_t> waiting;
  if (const auto monitor = Monitor::connect(runtime_folder)) {
    if (const auto status = monitor->status()) {
      for (const v1::DeviceStatus& one : status->devices()) waiting[one.uuid()] = one.waiting();
    }
  }
  return std::ranges::min_element(devices_, {}, [&](const Device& one) { return waiting[one.usage->device]; })
      ->usage->device;
}

}  // namespace gpumem::cli
