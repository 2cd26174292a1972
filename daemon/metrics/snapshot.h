#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/refusals.h"
#include "daemon/core/views.h"
#include "daemon/metrics/collector.h"

namespace gpumem::metrics {

/// What the metrics say of the broker itself.
struct BrokerInfo {
  std::string version;
  std::string driver;
  core::WallTime started = std::chrono::system_clock::now();
};

/// What one scrape shows.
struct Snapshot {
  struct Device {
    core::DeviceView view;
    core::Reconciliation reconciliation;  ///< without its processes
    std::size_t processes_past_broker = 0;
  };
  struct Tenant {
    std::string parent;
    std::size_t sessions = 0;
    std::size_t mappings = 0;
    std::size_t region_waits = 0;
  };
  using Key = std::pair<std::string, core::DeviceIndex>;  ///< a tenant's name, and a device
  struct Usage {
    std::optional<core::Quota> quota;  ///< none: of several users together
    core::Charges charges;
    Bytes outside;
    Bytes burst;
    Bytes debt;
    Bytes in_use;  ///< as its sessions say
    Bytes imported;
    std::size_t waiting = 0;
    core::RegionTotal regions;
  };

  BrokerInfo info;
  core::TimePoint now{};  ///< the same moment as `wall`
  core::WallTime wall{};
  std::size_t sessions = 0;
  EventCounts events{};
  std::array<std::uint64_t, core::kBounds> refusals{};
  std::vector<Device> devices;
  std::map<std::string, Tenant> tenants;
  std::map<Key, Usage> usage;
  std::map<Key, Counters> counters;
};

}  // namespace gpumem::metrics
