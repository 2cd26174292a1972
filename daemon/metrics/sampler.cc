#include "daemon/metrics/sampler.h"

#include <vector>

namespace gpumem::metrics {
namespace {

// What one page copies on the core's thread.
constexpr std::size_t kPageTenants = 64;
constexpr std::size_t kPageSlices = 256;

void add(Snapshot::Usage& usage, const core::TenantView& view, bool alone) {
  if (alone) usage.quota = view.quota;
  for (std::size_t i = 0; i < core::kCharges; ++i) usage.charges.by_state[i] += view.charges.by_state[i];
  usage.outside += view.outside;
  usage.burst += view.burst;
  usage.debt += view.debt;
  usage.waiting += view.waiting;
}

// The bytes of each device that a session reports to use, at most the bytes that it is charged.
std::map<core::DeviceIndex, Bytes> in_use(const core::Executor& executor, const core::SessionView& view) {
  std::map<core::DeviceIndex, Bytes> bytes;
  for (const core::SliceView& slice : view.slices) bytes[slice.device] += slice.charged;
  for (const core::SharedView& shared : view.shared) bytes[shared.device] += shared.charged;
  for (auto& [device, of_device] : bytes) {
    const auto figures = executor.client_figures(view.id, device, of_device);
    of_device = figures ? Bytes{figures->in_use} : Bytes{};
  }
  return bytes;
}

void add_use(Snapshot& snapshot, const std::string& tenant, const core::SessionView& view,
             const std::map<core::DeviceIndex, Bytes>& in_use) {
  snapshot.tenants[tenant].mappings += view.mappings;
  snapshot.tenants[tenant].region_waits += view.region_waits;
  for (const auto& [device, bytes] : in_use) snapshot.usage[{tenant, device}].in_use += bytes;
  for (const core::SharedView& shared : view.shared)
    snapshot.usage[{tenant, shared.device}].imported += shared.imported;
}

}  // namespace

Sampler::Sampler(core::Executor& executor, BrokerInfo info) : executor_(executor), info_(std::move(info)) {
  executor_.post([&executor, collector = collector_](core::Broker&, core::TimePoint) {
    executor.watch(collector, core::WallTime::min());
  });
}

std::optional<Snapshot> Sampler::sample() {
  Snapshot snapshot;
  snapshot.info = info_;
  Members members;
  const bool copied = copy_devices(snapshot) && copy_tenants(snapshot, members) && copy_counters(snapshot) &&
                      copy_accounts(snapshot) && copy_use(snapshot, members);
  if (!copied) return std::nullopt;
  for (std::size_t i = 0; i < core::kBounds; ++i) snapshot.refusals[i] = core::refusals()[i];
  return snapshot;
}

bool Sampler::copy_devices(Snapshot& snapshot) {
  return executor_.post_and_wait([&](core::Broker& broker, core::TimePoint now) {
    collector_->begin_round(broker);
    snapshot.now = now;
    snapshot.wall = std::chrono::system_clock::now();
    snapshot.sessions = broker.session_count();
    snapshot.events = collector_->events();
    auto views = broker.devices();
    for (core::DeviceIndex i = 0; i < views.size(); ++i) {
      const core::Reconciliation& seen = broker.reconciliation(i);
      snapshot.devices.push_back({.view = std::move(views[i]),
                                  .reconciliation = seen.without_processes(),
                                  .processes_past_broker = seen.processes.size()});
    }
  });
}

bool Sampler::copy_tenants(Snapshot& snapshot, Members& members) {
  std::string after;
  for (bool more = true; more;) {
    std::vector<core::TenantView> views;
    std::vector<std::string> shown;
    const bool copied = executor_.post_and_wait([&](core::Broker& broker, core::TimePoint) {
      views = broker.tenants(after, kPageTenants);
      for (const core::TenantView& view : views)
        shown.push_back(view.device == 0 ? collector_->name_of(view.name, broker) : shown.back());
    });
    if (!copied) return false;
    for (std::size_t i = 0; i < views.size(); ++i) {
      const core::TenantView& view = views[i];
      add(snapshot.usage[{shown[i], view.device}], view, shown[i] == view.name);
      members[view.name].regions.push_back(view.regions);
      if (view.device != 0) continue;
      members[view.name].shown = shown[i];
      members[view.name].parent = view.parent;
      Snapshot::Tenant& tenant = snapshot.tenants[shown[i]];
      tenant.parent = view.parent;
      tenant.sessions += view.sessions;
    }
    more = !views.empty() && views.size() == kPageTenants * snapshot.devices.size();
    if (more) after = views.back().name;
  }
  add_regions(snapshot, members);
  return true;
}

// A tenant's regions are those of all tenants above it, too.
void Sampler::add_regions(Snapshot& snapshot, const Members& members) {
  for (const auto& [name, tenant] : members) {
    for (auto above = members.find(name); above != members.end();
         above = members.find(above->second.parent)) {
      for (core::DeviceIndex device = 0; device < tenant.regions.size(); ++device) {
        core::RegionTotal& total = snapshot.usage[{above->second.shown, device}].regions;
        total.count += tenant.regions[device].count;
        total.bytes += tenant.regions[device].bytes;
        total.kept += tenant.regions[device].kept;
        total.kept_count += tenant.regions[device].kept_count;
      }
    }
  }
}

bool Sampler::copy_counters(Snapshot& snapshot) {
  std::string after;
  for (bool more = true; more;) {
    std::map<std::string, Collector::ByDevice> page;
    const bool copied = executor_.post_and_wait(
        [&](core::Broker& broker, core::TimePoint) { page = collector_->page(after, kPageTenants, broker); });
    if (!copied) return false;
    more = page.size() == kPageTenants;
    if (more) after = page.rbegin()->first;
    for (auto& [tenant, devices] : page) {
      for (auto& [device, counters] : devices)
        snapshot.counters.emplace(Snapshot::Key{tenant, device}, counters);
    }
  }
  return true;
}

// Accounts of tenants that are gone, or are not shown by their names, are left out.
bool Sampler::copy_accounts(Snapshot& snapshot) {
  core::UsagePage page;
  do {
    const auto after = page.next;
    const bool copied = executor_.post_and_wait(
        [&](core::Broker& broker, core::TimePoint now) { page = broker.usage(after, kPageTenants, now); });
    if (!copied) return false;
    for (const core::UsageView& view : page.views) {
      const auto shown = snapshot.usage.find({view.tenant, view.device});
      if (view.tenant.empty())
        snapshot.devices[view.device].account = view.usage;
      else if (shown != snapshot.usage.end())
        shown->second.account = view.usage;
    }
  } while (page.next);
  return true;
}

// A session's use is its tenant's, and that of all tenants above it.
bool Sampler::copy_use(Snapshot& snapshot, const Members& members) {
  struct Use {
    core::SessionView view;
    std::map<core::DeviceIndex, Bytes> in_use;
  };
  SessionId after;
  for (bool more = true; more;) {
    std::vector<Use> uses;
    const bool copied = executor_.post_and_wait([&](core::Broker& broker, core::TimePoint) {
      for (core::SessionView& view : broker.sessions(after, kPageSlices)) {
        auto bytes = in_use(executor_, view);
        uses.push_back({std::move(view), std::move(bytes)});
      }
      more = !uses.empty();
      if (more) after = uses.back().view.id;
    });
    if (!copied) return false;
    for (const Use& use : uses) {
      for (auto member = members.find(use.view.tenant); member != members.end();
           member = members.find(member->second.parent))
        add_use(snapshot, member->second.shown, use.view, use.in_use);
    }
  }
  return true;
}

}  // namespace gpumem::metrics
