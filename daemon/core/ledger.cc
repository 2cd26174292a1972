#include "daemon/core/ledger.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace gpumem::core {

Bytes Charges::total() const {
  Bytes sum;
  for (const Bytes bytes : by_state) sum += bytes;
  return sum;
}

Ledger::Ledger(const std::vector<Bytes>& pools) {
  const Quota unlimited{{}, {std::numeric_limits<std::uint64_t>::max()}};
  root_.quotas = std::make_shared<const Quotas>(pools.size(), unlimited);
  for (const Bytes pool : pools) {
    devices_.push_back({.pool = pool, .missing = {}, .in_debt = {}});
    root_.accounts.emplace_back().members = std::make_unique<Members>();
  }
}

// ---- The tree ----

TenantId Ledger::add_tenant(Quotas quotas, TenantId parent) {
  return add_tenant(std::make_shared<const Quotas>(std::move(quotas)), parent);
}

TenantId Ledger::add_tenant(std::shared_ptr<const Quotas> quotas, TenantId parent) {
  const TenantId tenant = ids_.next();
  Node& added = tenants_[tenant];
  added.parent = parent;
  added.quotas = std::move(quotas);
  GPUMEM_CHECK(added.quotas->size() == devices_.size(), "one quota a device");
  join(tenant);
  return tenant;
}

void Ledger::remove_tenant(TenantId tenant) {
  GPUMEM_CHECK(is_idle(tenant), "a tenant with charges cannot go");
  GPUMEM_CHECK(node(tenant).children == 0, "a tenant with others below it cannot go");
  leave(tenant);
  for (Device& device : devices_) device.in_debt.erase(tenant);
  tenants_.erase(tenant);
}

void Ledger::set_quotas(TenantId tenant, std::shared_ptr<const Quotas> quotas) {
  GPUMEM_CHECK(quotas->size() == devices_.size(), "one quota a device");
  leave(tenant);
  node(tenant).quotas = std::move(quotas);
  join(tenant);
  mark_changed(tenant);
}

void Ledger::set_parent(TenantId tenant, TenantId parent) {
  leave(tenant);
  node(tenant).parent = parent;
  join(tenant);
  mark_changed(tenant);
}

void Ledger::mark_changed(TenantId tenant) {
  for (DeviceIndex device = 0; device < devices_.size(); ++device) changed_.emplace_back(tenant, device);
}

// A node and all below it, as one, become part of what is above.
void Ledger::join(TenantId tenant) {
  Node& joining = node(tenant);
  Node& above = node_or_root(joining.parent);
  ++above.children;
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    const Quota& quota = (*joining.quotas)[device];
    if (!joining.accounts.empty()) derive(joining.accounts[device], quota);
    auto& members = open(above)[device].members;
    if (!members) members = std::make_unique<Members>();
    count_in(*members, figures(joining, device), quota, tenant);
    note_debt(tenant, device);
    update(joining.parent, device, [&](Account& account) {
      const Charges& own = charges(tenant, device);
      for (std::size_t i = 0; i < kCharges; ++i) account.charges.by_state[i] += own.by_state[i];
      account.outside += outside(tenant, device);
    });
    if (!promised(tenant, device).is_zero()) ++devices_[device].promises_revision;
  }
}

void Ledger::leave(TenantId tenant) {
  Node& leaving = node(tenant);
  Node& above = node_or_root(leaving.parent);
  --above.children;
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    count_out(*above.accounts[device].members, figures(leaving, device), (*leaving.quotas)[device], tenant);
    update(leaving.parent, device, [&](Account& account) {
      const Charges& own = charges(tenant, device);
      for (std::size_t i = 0; i < kCharges; ++i) account.charges.by_state[i] -= own.by_state[i];
      account.outside -= outside(tenant, device);
    });
    changed_.emplace_back(leaving.parent, device);
    if (!promised(tenant, device).is_zero()) ++devices_[device].promises_revision;
  }
}

std::vector<Ledger::Account>& Ledger::open(Node& one) {
  if (!one.accounts.empty()) return one.accounts;
  one.accounts.resize(one.quotas->size());
  for (DeviceIndex device = 0; device < one.accounts.size(); ++device)
    derive(one.accounts[device], (*one.quotas)[device]);
  return one.accounts;
}

void Ledger::close_if_idle(TenantId tenant) {
  std::vector<Account>& accounts = node(tenant).accounts;
  const auto idle = [](const Account& account) { return account.used().is_zero() && !account.members; };
  if (std::ranges::all_of(accounts, idle)) std::vector<Account>().swap(accounts);
}

// ---- Charges ----

template <class Change>
void Ledger::update(TenantId tenant, DeviceIndex device, Change&& change) {
  count_change(device);
  for (TenantId id = tenant; id;) {
    Node& one = node(id);
    Account& own = open(one)[device];
    const Quota& quota = (*one.quotas)[device];
    Members& above = *node_or_root(one.parent).accounts[device].members;
    const Figures before = figures(one, device);
    change(own);
    derive(own, quota);
    const Figures after = figures(one, device);
    above.kept = above.kept - before.kept + after.kept;
    above.promised = above.promised - before.promised + after.promised;
    rank(above, before.burst(), after.burst(), quota, id);
    note_debt(id, device);
    id = one.parent;
  }
  change(root_.accounts[device]);
  derive(root_.accounts[device], (*root_.quotas)[device]);
}

void Ledger::derive(Account& account, const Quota& quota) {
  account.kept = std::max(quota.guarantee.minus(account.used()), account.members_kept());
  account.promised = std::max(quota.guarantee, account.members ? account.members->promised : Bytes{});
}

void Ledger::note_debt(TenantId tenant, DeviceIndex device) {
  auto& in_debt = devices_[device].in_debt;
  if (!debt(tenant, device).is_zero())
    in_debt.insert(tenant);
  else if (!in_debt.empty())
    in_debt.erase(tenant);
}

void Ledger::count_in(Members& members, const Figures& child, const Quota& quota, TenantId id) {
  members.kept += child.kept;
  members.promised += child.promised;
  rank(members, {}, child.burst(), quota, id);
}

void Ledger::count_out(Members& members, const Figures& child, const Quota& quota, TenantId id) {
  members.kept -= child.kept;
  members.promised -= child.promised;
  rank(members, child.burst(), {}, quota, id);
}

void Ledger::rank(Members& members, Bytes before, Bytes after, const Quota& quota, TenantId id) {
  if (before == after) return;
  auto& bursting = members.bursting;
  const Bursting place{quota.priority, quota.share_of(after), id};
  if (before.is_zero()) {
    bursting.insert(place);
    return;
  }
  auto old = bursting.extract({quota.priority, quota.share_of(before), id});
  GPUMEM_CHECK(!old.empty(), "a burst has its place");
  if (after.is_zero()) return;
  old.value() = place;
  bursting.insert(std::move(old));
}

void Ledger::reserve(TenantId tenant, DeviceIndex device, Bytes bytes, Bytes spoken_for) {
  GPUMEM_CHECK(verdict(tenant, device, bytes, spoken_for) == Verdict::kFits, "only what fits is charged");
  update(tenant, device, [&](Account& account) { account.charges[Charge::kOffered] += bytes; });
  changed_.emplace_back(tenant, device);
  GPUMEM_CHECK(charges(device).total() <= pool(device), "charges within the pool");
}

// What is used stays the same, and all that follows from it.
void Ledger::move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to) {
  count_change(device);
  const auto move_in = [&](Charges& charges) {
    charges[from] -= bytes;
    charges[to] += bytes;
  };
  for (TenantId id = tenant; id;) {
    Node& one = node(id);
    move_in(open(one)[device].charges);
    id = one.parent;
  }
  move_in(root_.accounts[device].charges);
}

void Ledger::release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from) {
  update(tenant, device, [&](Account& account) { account.charges[from] -= bytes; });
  if (used(tenant, device).is_zero()) close_if_idle(tenant);
  changed_.emplace_back(tenant, device);
}

void Ledger::charge_outside(TenantId tenant, DeviceIndex device, Bytes bytes) {
  update(tenant, device, [&](Account& account) { account.outside += bytes; });
  changed_.emplace_back(tenant, device);
}

void Ledger::release_outside(TenantId tenant, DeviceIndex device, Bytes bytes) {
  update(tenant, device, [&](Account& account) { account.outside -= bytes; });
  if (used(tenant, device).is_zero()) close_if_idle(tenant);
  changed_.emplace_back(tenant, device);
}

void Ledger::set_missing(DeviceIndex device, Bytes bytes) {
  GPUMEM_CHECK(bytes <= devices_[device].pool, "missing bytes are bytes of the pool");
  if (devices_[device].missing == bytes) return;
  count_change(device);
  devices_[device].missing = bytes;
  changed_.emplace_back(TenantId{}, device);
}

void Ledger::set_lending(DeviceIndex device, bool lends) {
  if (devices_[device].lends == lends) return;
  count_change(device);
  devices_[device].lends = lends;
  ++devices_[device].promises_revision;
  changed_.emplace_back(TenantId{}, device);
}

std::vector<std::pair<TenantId, DeviceIndex>> Ledger::take_changed() {
  std::erase_if(changed_, [&](const auto& one) { return one.first && !tenants_.contains(one.first); });
  return std::exchange(changed_, {});
}

}  // namespace gpumem::core
