#include "daemon/metrics/render.h"

#include "base/printable.h"

namespace gpumem::metrics {
namespace {

using Device = Snapshot::Device;

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
     [](const Device& one) { return one.view.missing.count; }},
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
  render_claims(snapshot, writer);
  render_reconciliation(snapshot, writer);
  render_tenants(snapshot, writer);
  return std::move(writer).finish();
}

}  // namespace gpumem::metrics
