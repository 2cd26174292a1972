#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/number.h"

namespace gpumem {

inline constexpr std::string_view kDeviceNamePrefix = "gpu";
/// The name of the host store, also in place of a UUID. The broker lists it after the devices.
inline constexpr std::string_view kHostStore = "host";
/// The words for whoever names the host store where there is none.
inline constexpr const char* kNoHostStore =
    "the broker has no host store: its administrator adds [host] to gpumemd.toml";

/// `gpu0`, the name for people of the device at this place among those that the broker lends.
inline std::string device_name(std::size_t place) {
  return std::string(kDeviceNamePrefix) + std::to_string(place);
}

/// The place that `name` means, as device_name() writes it; nothing for any other text.
inline std::optional<std::size_t> device_place(std::string_view name) {
  if (!name.starts_with(kDeviceNamePrefix)) return std::nullopt;
  name.remove_prefix(kDeviceNamePrefix.size());
  return whole_number<std::size_t>(name);
}

}  // namespace gpumem
