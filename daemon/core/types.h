#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "gpumem/bytes.h"

namespace gpumem::core {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

using TenantId = Id<struct TenantTag>;
using JobId = Id<struct JobTag>;

/// A device's place in the broker's list; the same in the shared pages.
using DeviceIndex = std::size_t;

/// What a tenant may have on one device.
struct Quota {
  Bytes guarantee;
  Bytes limit;
  bool operator==(const Quota&) const = default;
};

/// Who is at the other end of a lane, as the kernel tells.
struct Peer {
  std::int64_t pid = 0;  ///< 0: unknown, it lives in another PID namespace
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;  ///< the primary group first
  std::string command;
};

}  // namespace gpumem::core
