#include "daemon/metrics/render.h"

#include <algorithm>

#include "base/text/printable.h"
#include "daemon/metrics/text_writer.h"

namespace gpumem::metrics {
namespace {

using Device = Snapshot::Device;

// Values of the label `kind` for charged bytes, in the order of core::Charge.
constexpr std::array<std::string_view, core::kCharges> kChargeKinds{"offered", "active", "returning",
                                                                    "quarantined", "reserved"};
// The `kind` of bytes that are charged outside the pool.
constexpr std::string_view kOutsideKind = "outside";

// Values of the label `kind` for accounts, in the order of core::Use.
constexpr std::array<std::string_view, core::kUses> kUseKinds{"lent",    "returning", "reserved",
                                                              "outside", "kept",      "waiting"};

struct DeviceGauge {
  Family family;
  std::uint64_t (*value)(const Device& device);
};

constexpr DeviceGauge kDeviceGauges[] = {
    {{"gpumem_device_memory_bytes", Type::kGauge, "bytes", "Memory of the device."},
     [](const Device& one) { return one.view.policy.total.count; }},
    {{"gpumem_device_pool_bytes", Type::kGauge, "bytes", "Memory of the device that the broker owns."},
     [](const Device& one) { return one.view.policy.pool.count; }},
    {{"gpumem_device_free_bytes", Type::kGauge, "bytes", "Memory of the pool that is charged to nobody."},
     [](const Device& one) { return one.view.free.count; }},
    {{"gpumem_device_warm_bytes", Type::kGauge, "bytes",
      "Free memory that needs no driver call to be granted."},
     [](const Device& one) { return one.view.warm.count; }},
    {{"gpumem_device_missing_bytes", Type::kGauge, "bytes",
      "Memory of the pool that is charged to nobody and that the driver does not give."},
     [](const Device& one) { return one.view.missing.minus(one.view.contexts).count; }},
    {{"gpumem_device_for_contexts_bytes", Type::kGauge, "bytes", "Memory of the pool that contexts have."},
     [](const Device& one) { return one.view.contexts.count; }},
    {{"gpumem_device_created_bytes", Type::kGauge, "bytes",
      "Memory of the pool that is created, lent or not."},
     [](const Device& one) { return one.view.created.count; }},
    {{"gpumem_device_guaranteed_bytes", Type::kGauge, "bytes", "Sum of the guarantees in force."},
     [](const Device& one) { return one.view.guaranteed.count; }},
    {{"gpumem_device_asked_back_bytes", Type::kGauge, "bytes", "Memory that borrowers are asked to return."},
     [](const Device& one) { return one.view.asked_back.count; }},
    {{"gpumem_device_waiting_requests", Type::kGauge, "", "Requests that wait."},
     [](const Device& one) { return std::uint64_t{one.view.waiting}; }},
};

// Of devices that the driver has been asked about.
constexpr DeviceGauge kReconciled[] = {
    {{"gpumem_device_driver_used_bytes", Type::kGauge, "bytes", "Memory in use, as the driver says."},
     [](const Device& one) { return one.reconciliation.used.count; }},
    {{"gpumem_device_extents_bytes", Type::kGauge, "bytes", "Of the memory in use: the pool, lent or not."},
     [](const Device& one) { return one.reconciliation.extents.count; }},
    {{"gpumem_device_contexts_bytes", Type::kGauge, "bytes", "Of the memory in use: contexts of sessions."},
     [](const Device& one) { return one.reconciliation.overhead.count; }},
    {{"gpumem_device_declared_bytes", Type::kGauge, "bytes", "Of the memory in use: declared by sessions."},
     [](const Device& one) { return one.reconciliation.declared.count; }},
    {{"gpumem_device_past_broker_bytes", Type::kGauge, "bytes",
      "Of the memory in use: taken past the broker."},
     [](const Device& one) { return one.reconciliation.past_broker.count; }},
    {{"gpumem_device_unexplained_bytes", Type::kGauge, "bytes",
      "Of the memory in use: nobody is known to hold it."},
     [](const Device& one) { return one.reconciliation.unexplained.count; }},
    {{"gpumem_device_past_broker_processes", Type::kGauge, "", "Processes that hold memory past the broker."},
     [](const Device& one) { return std::uint64_t{one.processes_past_broker}; }},
};

double in_seconds(core::Duration time) { return std::chrono::duration<double>(time).count(); }

double unix_time(core::WallTime time) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  return static_cast<double>(since.count()) / 1000;
}

void render_broker(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_broker", Type::kInfo, "", "The running broker."});
  writer.info({{"version", snapshot.info.version}, {"driver", printable_ascii(snapshot.info.driver)}});
  writer.begin({"gpumem_broker_start_time_seconds", Type::kGauge, "seconds",
                "When the broker started, since the epoch. It changes with every restart."});
  writer.sample({}, unix_time(snapshot.info.started));
  writer.begin(
      {"gpumem_broker_sessions", Type::kGauge, "", "Sessions, with those that ended and are still charged."});
  writer.sample({}, std::uint64_t{snapshot.sessions});
  writer.begin(
      {"gpumem_broker_events", Type::kCounter, "", "Events by kind, as `gpumem events` shows them."});
  for (std::size_t i = 0; i < core::kEventKinds; ++i) {
    const std::string_view kind = core::name_of(static_cast<core::Event::Kind>(i));
    writer.sample({{"kind", kind}}, snapshot.events[i]);
  }
  writer.begin({"gpumem_broker_refusals", Type::kCounter, "", "Clients that a bound has turned away."});
  for (std::size_t i = 0; i < core::kBounds; ++i)
    writer.sample({{"bound", core::kBoundNames[i]}}, snapshot.refusals[i]);
}

void render_charges(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_device_charged_bytes", Type::kGauge, "bytes",
                "Memory charged to tenants, by what it is doing. The kind outside is not of the pool."});
  for (const Device& device : snapshot.devices) {
    const std::string& uuid = device.view.policy.uuid;
    for (std::size_t i = 0; i < core::kCharges; ++i)
      writer.sample({{"device", uuid}, {"kind", kChargeKinds[i]}}, device.view.charges.by_state[i].count);
    writer.sample({{"device", uuid}, {"kind", kOutsideKind}}, device.view.outside.count);
  }
}

void render_device_accounts(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_device_memory_byte_seconds", Type::kCounter, "byte_seconds",
                "Memory of the device, times the time for which it was used, by how."});
  for (const Device& device : snapshot.devices) {
    for (std::size_t i = 0; i < core::kUses; ++i)
      writer.sample({{"device", device.view.policy.uuid}, {"kind", kUseKinds[i]}},
                    device.account[i].byte_seconds());
  }
}

void render_claims(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin(
      {"gpumem_device_claim_wait_seconds", Type::kGauge, "seconds",
       "Time since the oldest request was made that waits within its tenant's guarantee; 0 if none does."});
  for (const Device& device : snapshot.devices) {
    const auto& asked = device.view.claim_asked;
    writer.sample({{"device", device.view.policy.uuid}}, asked ? in_seconds(snapshot.now - *asked) : 0.0);
  }
  writer.begin({"gpumem_device_claim_wait_limit_seconds", Type::kGauge, "seconds",
                "The longest that such a request may wait; only where escalation is end-session."});
  for (const Device& device : snapshot.devices) {
    const core::ReclaimPolicy& reclaim = device.view.policy.reclaim;
    if (reclaim.escalation != core::Escalation::kEndSession) continue;
    writer.sample({{"device", device.view.policy.uuid}}, in_seconds(reclaim.deadline + reclaim.grace));
  }
}

void render_reconciliation(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_device_reconciliation_failed", Type::kGauge, "",
                "1 if the driver does not tell who uses the device's memory, else 0."});
  for (const Device& device : snapshot.devices)
    writer.sample({{"device", device.view.policy.uuid}},
                  std::uint64_t{!device.reconciliation.problem.empty()});
  writer.begin({"gpumem_device_reconciled_time_seconds", Type::kGauge, "seconds",
                "When the driver last told, since the epoch."});
  for (const Device& device : snapshot.devices) {
    if (!device.reconciliation.seen) continue;
    const auto ago =
        std::chrono::duration_cast<core::WallTime::duration>(snapshot.now - *device.reconciliation.seen);
    writer.sample({{"device", device.view.policy.uuid}}, unix_time(snapshot.wall - ago));
  }
  for (const DeviceGauge& gauge : kReconciled) {
    writer.begin(gauge.family);
    for (const Device& device : snapshot.devices) {
      if (device.reconciliation.seen)
        writer.sample({{"device", device.view.policy.uuid}}, gauge.value(device));
    }
  }
}

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

void render_tenant_accounts(const Snapshot& snapshot, TextWriter& writer) {
  writer.begin({"gpumem_tenant_memory_byte_seconds", Type::kCounter, "byte_seconds",
                "Memory of the tenant and of those below it, times the time for which it was used, by how."});
  for (const auto& [key, usage] : snapshot.usage) {
    for (std::size_t i = 0; usage.account && i < core::kUses; ++i)
      writer.sample({{"tenant", key.first}, {"device", device_of(snapshot, key)}, {"kind", kUseKinds[i]}},
                    (*usage.account)[i].byte_seconds());
  }
}

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
  render_tenant_accounts(snapshot, writer);
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

}  // namespace

std::string render(const Snapshot& snapshot) {
  TextWriter writer;
  render_broker(snapshot, writer);
  writer.begin({"gpumem_device", Type::kInfo, "", "A device that is lent."});
  for (const Device& device : snapshot.devices)
    writer.info({{"device", device.view.policy.uuid}, {"name", printable_ascii(device.view.policy.name)}});
  for (const DeviceGauge& gauge : kDeviceGauges) {
    writer.begin(gauge.family);
    for (const Device& device : snapshot.devices)
      writer.sample({{"device", device.view.policy.uuid}}, gauge.value(device));
  }
  render_charges(snapshot, writer);
  render_device_accounts(snapshot, writer);
  render_claims(snapshot, writer);
  render_reconciliation(snapshot, writer);
  render_tenants(snapshot, writer);
  return std::move(writer).finish();
}

}  // namespace gpumem::metrics
