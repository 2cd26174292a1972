#include <benchmark/benchmark.h>

#include <memory>

#include "bench/arbiter/decide.h"
#include "bench/arbiter/heap_in_use.h"
#include "bench/must.h"
#include "daemon/core/broker.h"

namespace gpumem::bench {
namespace {

constexpr std::uint32_t kTenants = 10'000;
constexpr std::size_t kDevices = 8;
constexpr Bytes kPool = gibibytes(80);

core::Policy devices_only() {
  core::Policy policy;
  for (std::size_t i = 0; i < kDevices; ++i)
    policy.devices.push_back({"GPU-" + std::to_string(i), "Idle", kPool, kPool, mebibytes(2)});
  policy.max_sessions = kTenants;
  return policy;
}

// A rule with quotas of its own for each tenant: what the configuration says of it counts too.
core::Policy with_rules() {
  core::Policy policy = devices_only();
  for (std::uint32_t uid = 0; uid < kTenants; ++uid) {
    core::TenantRule rule{.name = "tenant-" + std::to_string(uid), .uid = uid, .gid = {}, .quotas = {}};
    rule.quotas.assign(kDevices, {.guarantee = mebibytes(2), .limit = gibibytes(1) + mebibytes(uid)});
    policy.tenants.push_back(std::move(rule));
  }
  return policy;
}

std::unique_ptr<core::Broker> make_broker(core::Policy policy) {
  must(core::check(policy), "the policy");
  return std::make_unique<core::Broker>(std::move(policy));
}

// What `fill` adds to the heap, for each tenant.
template <class Fill>
double bytes_per_tenant(Fill&& fill) {
  const std::size_t before = heap_in_use();
  const auto filled = fill();
  return static_cast<double>(heap_in_use() - before) / kTenants;
}

void tenant_idle(benchmark::State& state) {
  for (auto _ : state) {
    state.counters["bytes_per_configured"] = bytes_per_tenant([] { return make_broker(with_rules()); });
    state.counters["of_it_policy"] =
        bytes_per_tenant([] { return std::make_unique<core::Policy>(with_rules()); });
    core::Policy open = devices_only();
    open.others.emplace(kDevices, core::Quota{.guarantee = {}, .limit = kPool});
    // One of the others is a tenant as long as it has a session, which counts with it.
    state.counters["bytes_per_other_with_session"] = bytes_per_tenant([&] {
      auto broker = make_broker(std::move(open));
      for (std::uint32_t uid = 0; uid < kTenants; ++uid)
        must(broker->open_session({.pid = 1 + uid, .uid = uid, .gids = {uid}, .command = "idle"}, "", {}),
             "session");
      broker->take_touched();
      broker->take_events();
      return broker;
    });
  }
}

}  // namespace

void register_tenant_idle() {
  benchmark::RegisterBenchmark("tenant_idle", tenant_idle)->Iterations(1)->Unit(benchmark::kMillisecond);
}

}  // namespace gpumem::bench
