#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/statistics.h"

namespace gpumem::cli {

/// All that the tenant may have of the device.
inline Bytes most_of(const DeviceUsage& device) { return std::min(device.limit, device.pool); }

/// Which device suits a command that any would do for.
class DeviceChoice {
 public:
  /// `limit`  of the command. Devices of which it cannot have as much as of another one do not count.
  /// `is_in_job`  of another command: devices on which that job has memory come first.
  DeviceChoice(const std::vector<DeviceUsage>& devices, const std::optional<Amount>& limit, bool is_in_job);

  /// UUIDs of the devices that have the limit available now, the one with the most first.
  std::vector<std::string> with_room() const;
  /// The UUID of the device that the fewest requests wait for. Without an answer of the broker, the device
  /// with the most available.
  std::string with_shortest_line(const std::filesystem::path& runtime_folder) const;

 private:
  struct Device {
    const DeviceUsage* usage;
    Bytes bytes;  ///< the limit, as far as the tenant may have it
  };
  std::vector<Device> devices_;  ///< at least one
};

}  // namespace gpumem::cli
