#pragma once

namespace gpumem {

/// Names of the two sockets in the broker's runtime folder.
inline constexpr const char* kLaneSocketName = "lane.sock";
inline constexpr const char* kApiSocketName = "api.sock";
inline constexpr const char* kDefaultRuntimeFolder = "/run/gpumemd";

}  // namespace gpumem
