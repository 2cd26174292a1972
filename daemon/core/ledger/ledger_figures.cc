#include <algorithm>

#include "base/check.h"
#include "daemon/core/ledger/ledger.h"

// The figures of the ledger. docs/arbiter.md defines them, and the rules that use them.

namespace gpumem::core {

Bytes Ledger::free(DeviceIndex device) const {
  const Device& one = devices_[device];
  return one.pool.minus(charges(device).total()).minus(one.missing);
}

Bytes Ledger::shortage(DeviceIndex device) const {
  return (charges(device).total() + missing(device)).minus(pool(device));
}

bool Ledger::is_idle(TenantId tenant) const {
  return std::ranges::all_of(node(tenant).accounts,
                             [](const Account& account) { return account.used().is_zero(); });
}

Bytes Ledger::debt(TenantId tenant, DeviceIndex device) const {
  return used(tenant, device).minus(quota(tenant, device).limit);
}

Bytes Ledger::unmet(TenantId tenant, DeviceIndex device) const {
  return quota(tenant, device).guarantee.minus(figures(tenant, device).used());
}

Bytes Ledger::reach(TenantId tenant, DeviceIndex device) const {
  return reach(tenant, device, unanswered(tenant, device).is_zero());
}

Bytes Ledger::reach(TenantId tenant, DeviceIndex device, bool may_borrow) const {
  Bytes reach = pool(device);
  if (lends(device) && may_borrow) return reach;
  for (TenantId id = tenant; id; id = parent(id))
    reach = reach.minus(members_promised(parent(id), device) - promised(id, device));
  return reach;
}

Bytes Ledger::room(TenantId tenant, DeviceIndex device) const {
  const Bytes own = std::min(quota(tenant, device).limit.minus(used(tenant, device)),
                             reach(tenant, device).minus(charges(tenant, device).total()));
  const TenantId of = whole(tenant);
  return of == tenant ? own : std::min(own, room(of, device));
}

// The part of the node's own guarantee that is not used, nor kept already by the guarantees of its members.
Bytes Ledger::own_claimable(const Node& one, DeviceIndex device) const {
  const Account& own = one.accounts[device];
  return one.quotas[device].guarantee.minus(own.used() + own.members.kept);
}

// The bytes that stand in the way of a claim. Declared memory does not, as far as the limit keeps room for
// claims.
Bytes Ledger::firm(const Figures& own, Bytes limit) {
  return own.pool + std::min(own.outside, limit.minus(own.pool + own.kept));
}

// The excess over the node's limit after a growth of `bytes` below it, of which `claimable` can be claimed.
// Saturates.
Bytes Ledger::excess(const Node& one, DeviceIndex device, Bytes bytes, Bytes claimable) const {
  const Figures own = figures(one, device);
  const Bytes limit = one.quotas[device].limit;
  if (limit == kUnlimited) return {};
  const auto over = [&](Bytes there, Bytes more) {
    return more.is_zero() ? Bytes{} : more.minus(limit.minus(there)).plus(there.minus(limit)).value_or(more);
  };
  return std::max(over(firm(own, limit), bytes), over(own.used() + own.kept, bytes.minus(claimable)));
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

Ledger::Verdict Ledger::verdict(TenantId tenant, DeviceIndex device, Bytes min_bytes,
                                const GrantTerms& terms) const {
  if (limiting(tenant, device, min_bytes)) return Verdict::kOverLimit;
  return min_bytes <= obtainable(tenant, device, terms, free(device)) ? Verdict::kFits : Verdict::kNoMemory;
}

// The most of the device's memory that the tenant could be granted if `free_bytes` were free, without regard
// to limits.
Bytes Ledger::obtainable(TenantId tenant, DeviceIndex device, const GrantTerms& terms,
                         Bytes free_bytes) const {
  const Bytes own = claimable(tenant, device);
  const Bytes unborrowed = std::min(free_bytes, own + free_bytes.minus(kept(device)));
  if (!lends(device)) return unborrowed;
  const Bytes lent = std::max(std::min(own, free_bytes), free_bytes.minus(terms.spoken_for));
  if (terms.may_borrow && unanswered(tenant, device).is_zero()) return lent;
  // Memory that others declare uses up their guarantees only as long as they declare it.
  return std::min({lent, unborrowed, own + free_bytes.minus(pool_kept(device))});
}

Bytes Ledger::kept_for_others(TenantId tenant, DeviceIndex device) const {
  return kept(device).minus(claimable(tenant, device));
}

Ledger::Ceiling Ledger::find_ceiling(TenantId tenant, DeviceIndex device, bool may_borrow) const {
  Ceiling ceiling{reach(tenant, device, may_borrow), {}, {}};
  Bytes to_others;  // promised below the node whose limit comes next
  for (TenantId id = tenant; id; id = parent(id)) {
    const Bytes most = quota(id, device).limit.minus(to_others);
    if (most < ceiling.bytes) ceiling = {most, id, to_others};
    to_others += members_promised(parent(id), device) - promised(id, device);
  }
  return ceiling;
}

Bytes Ledger::available(TenantId tenant, DeviceIndex device, const GrantTerms& terms) const {
  return available(tenant, device, terms, free(device));
}

Bytes Ledger::available_on_demand(TenantId tenant, DeviceIndex device, const GrantTerms& terms) const {
  return available(tenant, device, terms, free_or_creatable(device));
}

Bytes Ledger::available(TenantId tenant, DeviceIndex device, const GrantTerms& terms,
                        Bytes free_bytes) const {
  Bytes most = obtainable(tenant, device, terms, free_bytes);
  Bytes claimable;
  for (TenantId id = tenant; id;) {
    const Node& one = node(id);
    const Figures own = figures(one, device);
    const Bytes limit = one.quotas[device].limit;
    claimable += own_claimable(one, device);
    const Bytes beyond = limit.minus(own.used() + own.kept);
    most = std::min({most, limit.minus(firm(own, limit)), beyond.plus(claimable).value_or(beyond)});
    id = one.parent;
  }
  return most;
}

Bytes Ledger::available_to_newcomers(DeviceIndex device, const GrantTerms& terms) const {
  return free_or_creatable(device).minus(lends(device) ? terms.spoken_for : kept(device));
}

Ledger::Figures Ledger::figures(const Node& one, DeviceIndex device) const {
  GPUMEM_CHECK(device < devices_.size(), "device known");
  const Account& own = one.accounts[device];
  const Bytes pool = own.charges.total();
  const Bytes counted =
      one.is_part ? own.outside : std::min(own.outside, one.quotas[device].limit.minus(pool));
  return {pool, own.outside, own.kept, own.pool_kept, own.promised, counted};
}

}  // namespace gpumem::core
