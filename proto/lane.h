#pragma once
#include <cstddef>
#include <cstdint>

#include "base/label.h"

namespace gpumem {

/// The lane's version: raised when a message changes its meaning. Both sides must agree.
inline constexpr std::uint32_t kLaneProtocol = 2;
/// The longest message either side may send, in bytes; a longer one ends the session.
inline constexpr std::size_t kLaneMessageBytes = 4096;
/// Most descriptors in one message (the kernel's own limit is 253).
inline constexpr std::size_t kLaneDescriptors = 128;

/// Names of the two sockets in the broker's runtime folder.
inline constexpr const char* kLaneSocketName = "lane.sock";
inline constexpr const char* kApiSocketName = "api.sock";
inline constexpr const char* kDefaultRuntimeFolder = "/run/gpumemd";

/// gRPC metadata key that carries the token of a session of the lane's version 2.
inline constexpr const char* kSessionMetadataKey = "gpumem-session";

}  // namespace gpumem
