#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/sessions/views.h"
#include "daemon/core/words/refusals.h"
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
    core::Usage account{};
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
    std::optional<core::Usage> account;  ///< none: of several users together
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

/// Copies what the metrics show from the core: page by page, so that no call waits for more than one of them.
/// The pages are of different moments: sums over tenants may differ a little from what their device says.
/// Threads  one, which is not the core's.
class Sampler {
 public:
  /// Begins to count events. `executor`  outlives it.
  Sampler(core::Executor& executor, BrokerInfo info);

  /// Nothing: the core has stopped.  Blocks  while the core is busy.
  std::optional<Snapshot> sample();

 private:
  /// A tenant and its parent, by the names under which they are shown, and what it has published.
  struct Member {
    std::string shown;
    std::string parent;
    std::vector<core::RegionTotal> regions;  ///< by device
  };
  using Members = std::map<std::string, Member>;
  bool copy_devices(Snapshot& snapshot);
  bool copy_tenants(Snapshot& snapshot, Members& members);
  static void add_regions(Snapshot& snapshot, const Members& members);
  bool copy_counters(Snapshot& snapshot);
  bool copy_accounts(Snapshot& snapshot);
  bool copy_use(Snapshot& snapshot, const Members& members);

  core::Executor& executor_;
  const BrokerInfo info_;
  const std::shared_ptr<Collector> collector_ = std::make_shared<Collector>();
};

}  // namespace gpumem::metrics
