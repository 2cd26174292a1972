#include "bench/arbiter/decide.h"

#include <benchmark/benchmark.h>

#include "bench/arbiter/set_floor.h"
#include "bench/must.h"
#include "daemon/core/arbiter/arbiter.h"

namespace gpumem::bench {
namespace {

using core::TimePoint;

constexpr Bytes kExtent = mebibytes(2);
constexpr std::int64_t kEvents = 20'000;
constexpr std::int64_t kWarmUp = 2'000;

// Full devices: their tenants hold an extent or more of each, of all weights; `waiters` requests for one more
// of every device wait.
class FullDevices {
 public:
  FullDevices(std::size_t devices, std::size_t tenants, std::size_t waiters)
      : pool_{kExtent.count * std::max<std::size_t>(2 * tenants, 1000)},
        ledger_(std::vector<Bytes>(devices, pool_)),
        arbiter_(ledger_, std::vector<Bytes>(devices, kExtent), std::chrono::seconds(30)) {
    for (std::size_t i = 0; i < tenants; ++i) {
      const core::Quota quota{.guarantee = {}, .limit = pool_, .weight = 50U << (i % 4)};
      tenants_.push_back(ledger_.add_tenant(core::Quotas(devices, quota)));
    }
    for (std::size_t i = 0; ledger_.free(0) >= kExtent; ++i) take(tenants_[i % tenants]);
    for (std::size_t i = 0; i < waiters; ++i) arbiter_.add(request(tenants_[i % tenants]));
    require(arbiter_.admit().empty(), "the devices are full");
  }

  struct Took {
    Clock::duration
        decision;          ///< a holder releases an extent of each device, the first in the order gets them
    Clock::duration join;  ///< another request joins
  };
  Took step() {
    TenantId& holder = holders_[shuffle_.below(holders_.size())];
    core::Request newcomer = request(tenants_[shuffle_.below(tenants_.size())]);
    std::vector<core::Granted> granted;
    Took took{};
    took.decision = timed([&] {
      for (std::size_t device = 0; device < ledger_.device_count(); ++device)
        ledger_.release(holder, device, kExtent, core::Charge::kActive);
      granted = arbiter_.admit();
    });
    took.join = timed([&] { arbiter_.add(std::move(newcomer)); });
    require(granted.size() == 1, "what is released is granted once");
    holder = granted.front().request.tenant;
    activate(holder);
    return took;
  }

 private:
  using TenantId = core::TenantId;

  void take(TenantId tenant) {
    for (std::size_t device = 0; device < ledger_.device_count(); ++device)
      ledger_.reserve(tenant, device, kExtent);
    activate(tenant);
    holders_.push_back(tenant);
  }
  void activate(TenantId tenant) {
    for (std::size_t device = 0; device < ledger_.device_count(); ++device)
      ledger_.move(tenant, device, kExtent, core::Charge::kOffered, core::Charge::kActive);
  }
  core::Request request(TenantId tenant) {
    const RequestId id = ids_.next();
    const TimePoint asked{std::chrono::nanoseconds(id.value)};
    core::Request::Parts parts;
    for (std::size_t device = 0; device < ledger_.device_count(); ++device)
      parts.push_back({SliceId{tenant.value * ledger_.device_count() + device}, device, kExtent, kExtent});
    return {.id = id,
            .session = SessionId{tenant.value},
            .tenant = tenant,
            .parts = std::move(parts),
            .asked = asked,
            .deadline = asked + std::chrono::hours(1)};
  }

  Bytes pool_;
  core::Ledger ledger_;
  core::Arbiter arbiter_;
  std::vector<TenantId> tenants_;
  std::vector<TenantId> holders_;  ///< of one extent of each device
  IdSource<RequestId> ids_;
  Shuffle shuffle_;
};

void decide_on(std::size_t devices, benchmark::State& state) {
  const auto tenants = static_cast<std::size_t>(state.range(0));
  const auto waiters = static_cast<std::size_t>(state.range(1));
  FullDevices full(devices, tenants, waiters);
  for (std::int64_t i = 0; i < kWarmUp; ++i) full.step();
  Samples decisions, joins;
  for (auto _ : state) {
    const auto took = full.step();
    decisions.add(took.decision);
    joins.add(took.join);
    state.SetIterationTime(seconds(took.decision));
  }
  const double floor = SetFloor(waiters).take(static_cast<std::size_t>(kEvents)).median_us();
  state.counters["median_us"] = decisions.median_us();
  state.counters["p99_us"] = decisions.quantile_us(0.99);
  state.counters["join_median_us"] = joins.median_us();
  state.counters["floor_us"] = floor;
  state.counters["per_floor"] = decisions.median_us() / floor;
}

void decide(benchmark::State& state) { decide_on(1, state); }
void decide_joint(benchmark::State& state) { decide_on(2, state); }

}  // namespace

void register_decide() {
  const auto add = [](const char* name, void (*measure)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, measure)
        ->ArgNames({"tenants", "waiters"})
        ->ArgsProduct({{10, 1000}, {10, 16'384}})
        ->Iterations(kEvents)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  add("decide", decide);
  add("decide_joint", decide_joint);
}

}  // namespace gpumem::bench
