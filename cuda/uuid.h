#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::cuda {

/// Names one GPU everywhere: ordinals differ from process to process, this does not.
struct DeviceUuid {
  std::array<std::uint8_t, 16> bytes{};
  auto operator<=>(const DeviceUuid&) const = default;
};

/// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, as nvidia-smi prints it.
std::string to_string(const DeviceUuid& uuid);

/// Reads what to_string prints; the `GPU-` may be missing. Errors  kInvalidArgument.
Result<DeviceUuid> parse_device_uuid(std::string_view text);

}  // namespace gpumem::cuda
