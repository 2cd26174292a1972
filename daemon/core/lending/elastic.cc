#include "daemon/core/lending/elastic.h"

#include <algorithm>

#include "daemon/core/reclaim/reclaim_plan.h"

namespace gpumem::core {
namespace {

// A small pool is at least so many times as large as the stock.
constexpr std::uint64_t kPoolPerStock = 16;
// A surplus below this part of the stock stays: giving it back costs driver calls.
constexpr std::uint64_t kLeastShare = 8;
// The driver creates at least so many bytes in a second. It usually creates five times as many.
constexpr std::uint64_t kLeastPerSecond = 2ULL << 30;

}  // namespace

Elastic::Elastic(State& state, Leases& leases)
    : state_(state), leases_(leases), devices_(state.policy.devices.size()) {
  follow_policy({});
}

void Elastic::follow_policy(TimePoint now) {
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    Store& store = leases_.store(device);
    if (store.is_elastic() == is_elastic(device)) continue;
    store.set_elastic(is_elastic(device), now);
    const DevicePolicy& policy = state_.policy.devices[device];
    store.keep_free(kept_for_contexts(policy, {}), kept_for_others(policy));
    devices_[device] = {};
    state_.not_asked_for[device] = {};
    state_.ledger.set_creatable(device, {});
  }
}

Bytes Elastic::stock(DeviceIndex device) const {
  const DevicePolicy& policy = state_.policy.devices[device];
  return std::min(kStock, Bytes{policy.pool.count / kPoolPerStock}).rounded_down(policy.granularity);
}

void Elastic::update(TimePoint now) {
  for (DeviceIndex device = 0; device < devices_.size(); ++device)
    if (is_elastic(device)) update(device, now);
}

// Promised memory comes first. Of the requests that wait, the first is created for. When it is granted, the
// next is the first. A context needs memory of the driver, which creating would take away.
void Elastic::update(DeviceIndex device, TimePoint now) {
  Store& store = leases_.store(device);
  const Ledger& ledger = state_.ledger;
  const Bytes promised = ledger.kept(device);
  Bytes needed = promised;
  Bytes first, largest;
  const auto next = state_.arbiter.next(device);
  if (const Request* request = next ? state_.arbiter.find(*next) : nullptr;
      request && !request->is_context()) {
    needed = std::max(needed, lack_of(ledger, state_.arbiter, *request, device, {}));
    first = needed_of(ledger, *request, device);
    largest = request->part_on(device).largest;
  }
  const Bytes target = needed + stock(device);
  const Bytes free = ledger.free(device);
  if (promised > free)
    store.set_promised_demand(promised - free, now);
  else
    store.set_demand(target.minus(free), first, largest, now);
  give_back(device, free.minus(target), now);
  note_figures(device);
}

void Elastic::note_figures() {
  for (DeviceIndex device = 0; device < devices_.size(); ++device)
    if (is_elastic(device)) note_figures(device);
}

void Elastic::note_figures(DeviceIndex device) {
  const Store& store = leases_.store(device);
  state_.not_asked_for[device] = store.refused().is_zero() ? store.obtainable() : store.dormant();
  state_.ledger.set_creatable(device, store.creatable());
}

void Elastic::give_back(DeviceIndex device, Bytes surplus, TimePoint now) {
  Device& one = devices_[device];
  const Bytes granularity = state_.policy.devices[device].granularity;
  const Bytes least = std::max(granularity, Bytes{stock(device).count / kLeastShare});
  if (surplus < least) {
    one.surplus_since.reset();
    return;
  }
  one.surplus = one.surplus_since ? std::min(one.surplus, surplus) : surplus;
  if (!one.surplus_since) one.surplus_since = now;
  Store& store = leases_.store(device);
  if (now < *one.surplus_since + kIdle || store.is_shrinking()) return;
  static_cast<void>(store.shrink(one.surplus.rounded_down(granularity)));  // if it cannot, later
  state_.ledger.set_missing(device, store.missing());
  one.surplus_since.reset();
}

std::optional<TimePoint> Elastic::next_deadline() const {
  std::optional<TimePoint> next;
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    const auto& since = devices_[device].surplus_since;
    if (!since || leases_.store(device).is_shrinking()) continue;
    next = std::min(next.value_or(*since + kIdle), *since + kIdle);
  }
  return next;
}

template <class Each>
bool Elastic::all_lacks(const Request& request, Each&& each) const {
  const Ledger& ledger = state_.ledger;
  bool any = false;
  if (request.is_context()) return false;
  for (const Request::Part& part : request.parts) {
    const Bytes needed = needed_of(ledger, request, part.device);
    if (ledger.limiting(request.tenant, part.device, needed)) return false;
    const Bytes lack = lack_of(ledger, state_.arbiter, request, part.device, ledger.free(part.device));
    if (lack.is_zero()) continue;
    if (!is_elastic(part.device) || !each(part.device, lack)) return false;
    any = true;
  }
  return any;
}

bool Elastic::can_create_for(const Request& request) const {
  return all_lacks(request, [&](DeviceIndex device, Bytes lack) {
    const Store& store = leases_.store(device);
    return lack <= store.obtainable();
  });
}

bool Elastic::is_creating_for(const Request& request) const {
  return all_lacks(request, [&](DeviceIndex device, Bytes lack) {
    const Store& store = leases_.store(device);
    return lack <= store.obtainable() && store.is_creating(lack);
  });
}

Duration Elastic::patience(const Request& request) const {
  Bytes sum;
  for (const Request::Part& part : request.parts) sum += part.bytes;
  const std::chrono::duration<double> creating(static_cast<double>(sum.count) / kLeastPerSecond);
  return state_.policy.return_grace + std::chrono::duration_cast<Duration>(creating);
}

}  // namespace gpumem::core
