#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/metrics/snapshot.h"

namespace gpumem::metrics {

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
  using Work = std::function<void(core::Broker& broker, core::TimePoint now)>;

  bool on_core(const Work& work);
  bool copy_devices(Snapshot& snapshot);
  bool copy_tenants(Snapshot& snapshot, Members& members);
  static void add_regions(Snapshot& snapshot, const Members& members);
  bool copy_counters(Snapshot& snapshot);
  bool copy_use(Snapshot& snapshot, const Members& members);

  core::Executor& executor_;
  const BrokerInfo info_;
  const std::shared_ptr<Collector> collector_ = std::make_shared<Collector>();
};

}  // namespace gpumem::metrics
