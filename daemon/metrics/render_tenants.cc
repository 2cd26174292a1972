#include <algorithm>

#include "daemon/metrics/render.h"

// What the metrics say of tenants.

namespace gpumem::metrics {
namespace {

using Usage = Snapshot::Usage;

struct UsageGauge {
  Family family;
  std::uint64_t (*value)(const Usage& usage);
};

constexpr UsageGauge kQuotas[] = {
    {{"gpumem_tenant_guarantee_bytes", Type::kGauge, "bytes", "What the tenant can always have."},
     [](const Usage& one) { return one.quota->guarantee.count; }},
    {{"gpumem_tenant_limit_bytes", Type::kGauge, "bytes", "The most that the tenant may have."},
     [](const Usage& one) { return one.quota->limit.count; }},
    {{"gpumem_tenant_weight", Type::kGauge, "", "The tenant's part of what nobody is promised."},
     [](const Usage& one) { return std::uint64_t{one.quota->weight}; }},
    {{"gpumem_tenant_priority", Type::kGauge, "", "Requests of a higher priority go first."},
     [](const Usage& one) { return std::uint64_t{one.quota->priority}; }},
};

constexpr UsageGauge kUsage[] = {
    {{"gpumem_tenant_burst_bytes", Type::kGauge, "bytes", "Charged beyond what is promised."},
     [](const Usage& one) { return one.burst.count; }},
    {{"gpumem_tenant_debt_bytes", Type::kGauge, "bytes", "Charged beyond the limit."},
     [](const Usage& one) { return one.debt.count; }},
    {{"gpumem_tenant_in_use_bytes", Type::kGauge, "bytes", "Of the charge: what the sessions say they use."},
     [](const Usage& one) { return one.in_use.count; }},
    {{"gpumem_tenant_waiting_requests", Type::kGauge, "", "Requests that wait."},
     [](const Usage& one) { return std::uint64_t{one.waiting}; }},
    {{"gpumem_regions", Type::kGauge, "", "Regions that the tenant has published."},
     [](const Usage& one) { return std::uint64_t{one.regions.count}; }},
    {{"gpumem_region_bytes", Type::kGauge, "bytes",
      "Memory of those regions; what they have in common counts in each."},
     [](const Usage& one) { return one.regions.bytes.count; }},
    {{"gpumem_kept_regions", Type::kGauge, "", "Of those regions: which outlive their processes."},
     [](const Usage& one) { return std::uint64_t{one.regions.kept_count}; }},
    {{"gpumem_kept_region_bytes", Type::kGauge, "bytes",
      "Memory of the kept regions; what they have in common counts in each."},
     [](const Usage& one) { return one.regions.kept.count; }},
    {{"gpumem_tenant_imported_bytes", Type::kGauge, "bytes",
      "Memory charged to others that the tenant's sessions have mapped."},
     [](const Usage& one) { return one.imported.count; }},
};

struct SessionsGauge {
  Family family;
  std::size_t Snapshot::Tenant::*value;
};

constexpr SessionsGauge kSessions[] = {
    {{"gpumem_tenant_sessions", Type::kGauge, "", "Sessions of the tenant and of those below it."},
     &Snapshot::Tenant::sessions},
    {{"gpumem_tenant_mappings", Type::kGauge, "", "Regions and handles that these sessions have mapped."},
     &Snapshot::Tenant::mappings},
    {{"gpumem_tenant_region_waits", Type::kGauge, "", "Regions that these sessions wait for."},
     &Snapshot::Tenant::region_waits},
};

struct BytesCounter {
  Family family;
  Bytes Counters::*value;
};

constexpr BytesCounter kBytes[] = {
    {{"gpumem_tenant_charged_peak_bytes", Type::kGauge, "bytes", "The most that was charged at a grant."},
     &Counters::peak},
    {{"gpumem_tenant_granted_bytes", Type::kCounter, "bytes", "Memory granted."}, &Counters::granted},
    {{"gpumem_tenant_returned_bytes", Type::kCounter, "bytes", "Memory that sessions returned."},
     &Counters::returned},
    {{"gpumem_tenant_freed_bytes", Type::kCounter, "bytes", "Memory proved free."}, &Counters::freed},
    {{"gpumem_tenant_quarantined_bytes", Type::kCounter, "bytes",
      "Memory that came back, but that the driver did not give at once."},
     &Counters::quarantined},
};

struct Latency {
  Family family;
  Histogram Counters::*value;
};

constexpr Latency kLatencies[] = {
    {{"gpumem_tenant_grant_wait_seconds", Type::kHistogram, "seconds", "From a request to its grant."},
     &Counters::grant_wait},
    {{"gpumem_tenant_denial_wait_seconds", Type::kHistogram, "seconds", "From a request to its denial."},
     &Counters::denial_wait},
    {{"gpumem_tenant_reclaim_seconds", Type::kHistogram, "seconds",
      "From asking a session for memory until it is not asked any more."},
     &Counters::reclaim},
};

const std::string& device_of(const Snapshot& snapshot, const Snapshot::Key& key) {
  return snapshot.devices[key.second].view.policy.uuid;
}

void render_gauge(const Snapshot& snapshot, TextWriter& writer, const UsageGauge& gauge, bool of_quota) {
  writer.begin(gauge.family);
  for (const auto& [key, usage] : snapshot.usage) {
    if (usage.quota || !of_quota)
      writer.sample({{"tenant", key.first}, {"device", device_of(snapshot, key)}}, gauge.value(usage));
  }
}

void render_tenant_charges(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_tenant_charged_bytes", Type::kGauge, "bytes",
                "Memory charged to the tenant and to those below it, by what it is doing."});
  for (const auto& [key, usage] : snapshot.usage) {
    const std::string& device = device_of(snapshot, key);
    for (std::size_t i = 0; i < core::kCharges; ++i) {
      writer.sample({{"tenant", key.first}, {"device", device}, {"kind", kChargeKinds[i]}},
                    usage.charges.by_state[i].count);
    }
    writer.sample({{"tenant", key.first}, {"device", device}, {"kind", kOutsideKind}}, usage.outside.count);
  }
}

}  // namespace

void render_tenants(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_tenant", Type::kInfo, "", "A tenant, and the one that it belongs to."});
  for (const auto& [name, tenant] : snapshot.tenants)
    writer.info({{"tenant", name}, {"parent", tenant.parent}});
  for (const SessionsGauge& gauge : kSessions) {
    writer.begin(gauge.family);
    for (const auto& [name, tenant] : snapshot.tenants)
      writer.sample({{"tenant", name}}, std::uint64_t{tenant.*gauge.value});
  }
  for (const UsageGauge& gauge : kQuotas) render_gauge(snapshot, writer, gauge, true);
  render_tenant_charges(snapshot, writer);
  for (const UsageGauge& gauge : kUsage) render_gauge(snapshot, writer, gauge, false);
  for (const BytesCounter& counter : kBytes) {
    writer.begin(counter.family);
    for (const auto& [key, counters] : snapshot.counters)
      writer.sample({{"tenant", key.first}, {"device", device_of(snapshot, key)}},
                    (counters.*counter.value).count);
  }
  for (const Latency& latency : kLatencies) {
    writer.begin(latency.family);
    for (const auto& [key, counters] : snapshot.counters)
      writer.histogram({{"tenant", key.first}, {"device", device_of(snapshot, key)}},
                       counters.*latency.value);
  }
}

}  // namespace gpumem::metrics
