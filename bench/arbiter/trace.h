#pragma once
#include <cstdint>
#include <vector>

#include "daemon/core/types.h"

namespace gpumem::bench {

using core::DeviceIndex;
using core::Duration;
using core::TimePoint;

/// What the days that are simulated look like; README.md says it in words.
struct TraceOptions {
  std::size_t tenants = 10'000;
  std::size_t sessions = 100'000;
  std::size_t devices = 8;
  Bytes pool = gibibytes(80);  ///< of each device
  Duration day = std::chrono::hours(24);
  /// Bytes times seconds that are asked for, as a part of what the pools have in a day.
  double load = 0.85;
  std::uint64_t seed = 1;
};

struct SimulatedTenant {
  DeviceIndex home = 0;
  Bytes guarantee;  ///< on the home device
  std::uint32_t weight = core::kDefaultWeight;
};

/// A process that wants memory of one device for a time.
struct SimulatedSession {
  std::uint32_t tenant = 0;
  DeviceIndex device = 0;
  TimePoint arrival{};
  Bytes size;
  Bytes least;  ///< less is of no use; below `size` for an elastic session, which can give the rest back
  Duration duration{};  ///< from its first memory on
  Duration patience{};  ///< for its first memory
  bool elastic() const { return least < size; }
};

struct Trace {
  TraceOptions options;
  std::vector<SimulatedTenant> tenants;
  std::vector<SimulatedSession> sessions;  ///< in the order they arrive
};

inline constexpr Bytes kGranularity = mebibytes(2);

/// The same options give the same trace.
Trace make_trace(const TraceOptions& options);

}  // namespace gpumem::bench
