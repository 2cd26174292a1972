#include <algorithm>

#include "base/check.h"
#include "daemon/core/ledger.h"

// What can be asked of the ledger. docs/arbiter.md has the figures and what follows from them.

namespace gpumem::core {

Bytes Ledger::free(DeviceIndex device) const {
  const Device& one = devices_[device];
  return one.pool.minus(charges(device).total()).minus(one.missing);
}

bool Ledger::is_idle(TenantId tenant) const {
  return std::ranges::all_of(node(tenant).accounts,
                             [](const Account& account) { return account.used().is_zero(); });
}

Bytes Ledger::debt(TenantId tenant, DeviceIndex device) const {
  return used(tenant, device).minus(quota(tenant, device).limit);
}

Bytes Ledger::unmet(TenantId tenant, DeviceIndex device) const {
  return quota(tenant, device).guarantee.minus(used(tenant, device));
}

Bytes Ledger::reach(TenantId tenant, DeviceIndex device) const {
  Bytes reach = pool(device);
  if (lends(device)) return reach;
  for (TenantId id = tenant; id; id = parent(id))
    reach = reach.minus(members_promised(parent(id), device) - promised(id, device));
  return reach;
}

Bytes Ledger::room(TenantId tenant, DeviceIndex device) const {
  return std::min(quota(tenant, device).limit.minus(used(tenant, device)),
                  reach(tenant, device).minus(charges(tenant, device).total()));
}

// What of the node's own guarantee neither it has nor its members' guarantees keep already.
Bytes Ledger::own_claimable(const Node& one, DeviceIndex device) {
  const Bytes members_kept = one.accounts.empty() ? Bytes{} : one.accounts[device].members_kept();
  return (*one.quotas)[device].guarantee.minus(figures(one, device).used + members_kept);
}

// Of a node's limit, by a growth below it of which so much can be claimed. Saturates.
Bytes Ledger::excess(const Node& one, DeviceIndex device, Bytes bytes, Bytes claimable) {
  const Figures own = figures(one, device);
  const Bytes limit = (*one.quotas)[device].limit;
  const auto over = [&](Bytes there, Bytes more) {
    return more.is_zero() ? Bytes{} : more.minus(limit.minus(there)).plus(there.minus(limit)).value_or(more);
  };
  return std::max(over(own.used, bytes), over(own.used + own.kept, bytes.minus(claimable)));
}

Bytes Ledger::claimable(TenantId tenant, DeviceIndex device, TenantId upto) const {
  Bytes sum;
  for (TenantId id = tenant; id;) {
    const Node& one = node(id);
    sum += own_claimable(one, device);
    if (id == upto) break;
    id = one.parent;
  }
  return sum;
}

TenantId Ledger::limiting(TenantId tenant, DeviceIndex device, Bytes bytes) const {
  Bytes claimable;
  for (TenantId id = tenant; id;) {
    const Node& one = node(id);
    claimable += own_claimable(one, device);
    if (!excess(one, device, bytes, claimable).is_zero()) return id;
    id = one.parent;
  }
  return {};
}

Bytes Ledger::excess_at(TenantId at, TenantId tenant, DeviceIndex device, Bytes bytes) const {
  return excess(node(at), device, bytes, claimable(tenant, device, at));
}

Ledger::Verdict Ledger::verdict(TenantId tenant, DeviceIndex device, Bytes least, Bytes spoken_for) const {
  if (limiting(tenant, device, least)) return Verdict::kOverLimit;
  return least <= obtainable(tenant, device, spoken_for) ? Verdict::kFits : Verdict::kNoMemory;
}

// Of the device's memory, limits apart.
Bytes Ledger::obtainable(TenantId tenant, DeviceIndex device, Bytes spoken_for) const {
  const Bytes free_bytes = free(device);
  const Bytes own = claimable(tenant, device);
  if (lends(device)) return std::max(std::min(own, free_bytes), free_bytes.minus(spoken_for));
  return std::min(free_bytes, own + free_bytes.minus(kept(device)));
}

Bytes Ledger::kept_for_others(TenantId tenant, DeviceIndex device) const {
  return kept(device).minus(claimable(tenant, device));
}

Bytes Ledger::ceiling(TenantId tenant, DeviceIndex device) const {
  Bytes most = reach(tenant, device);
  Bytes to_others;  // below the node whose limit is looked at
  for (TenantId id = tenant; id; id = parent(id)) {
    most = std::min(most, quota(id, device).limit.minus(to_others));
    to_others += members_promised(parent(id), device) - promised(id, device);
  }
  return most;
}

Bytes Ledger::available(TenantId tenant, DeviceIndex device, Bytes spoken_for) const {
  Bytes most = obtainable(tenant, device, spoken_for);
  Bytes claimable;
  for (TenantId id = tenant; id;) {
    const Node& one = node(id);
    const Figures own = figures(one, device);
    const Bytes limit = (*one.quotas)[device].limit;
    claimable += own_claimable(one, device);
    const Bytes beyond = limit.minus(own.used + own.kept);
    most = std::min({most, limit.minus(own.used), beyond.plus(claimable).value_or(beyond)});
    id = one.parent;
  }
  return most;
}

const std::set<Ledger::Bursting>& Ledger::bursting(TenantId above, DeviceIndex device) const {
  static const std::set<Bursting> nobody;
  const Account* own = account(above, device);
  return own != nullptr && own->members ? own->members->bursting : nobody;
}

const Charges& Ledger::charges(TenantId tenant, DeviceIndex device) const {
  static const Charges nothing;
  const Account* own = account(tenant, device);
  return own == nullptr ? nothing : own->charges;
}

Bytes Ledger::outside(TenantId tenant, DeviceIndex device) const {
  const Account* own = account(tenant, device);
  return own == nullptr ? Bytes{} : own->outside;
}

Bytes Ledger::members_promised(TenantId tenant, DeviceIndex device) const {
  const Account* own = account(tenant, device);
  return own != nullptr && own->members ? own->members->promised : Bytes{};
}

Ledger::Figures Ledger::figures(const Node& one, DeviceIndex device) {
  GPUMEM_CHECK(device < one.quotas->size(), "device known");
  if (one.accounts.empty()) {
    const Bytes guarantee = (*one.quotas)[device].guarantee;
    return {{}, guarantee, guarantee};
  }
  const Account& own = one.accounts[device];
  return {own.used(), own.kept, own.promised};
}

const Ledger::Node& Ledger::node(TenantId tenant) const {
  const auto found = tenants_.find(tenant);
  GPUMEM_CHECK(found != tenants_.end(), "tenant known");
  return found->second;
}

// Nothing, for a tenant that is idle.
const Ledger::Account* Ledger::account(TenantId tenant, DeviceIndex device) const {
  const Node& one = node_or_root(tenant);
  GPUMEM_CHECK(device < devices_.size(), "device known");
  return one.accounts.empty() ? nullptr : &one.accounts[device];
}

}  // namespace gpumem::core
