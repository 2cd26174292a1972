#include "daemon/core/ledger/ledger.h"

#include <algorithm>

#include "base/check.h"

namespace gpumem::core {
namespace {

void add(Charges& to, const Charges& more) {
  for (std::size_t i = 0; i < kCharges; ++i) to.by_state[i] += more.by_state[i];
}

void subtract(Charges& from, const Charges& less) {
  for (std::size_t i = 0; i < kCharges; ++i) from.by_state[i] -= less.by_state[i];
}

}  // namespace

Bytes Charges::total() const {
  Bytes sum;
  for (const Bytes bytes : by_state) sum += bytes;
  return sum;
}

Ledger::Ledger(const std::vector<Bytes>& pools) {
  const Quota unlimited{{}, kUnlimited};
  root_.quotas.assign(pools.size(), unlimited);
  root_.accounts.resize(pools.size());
  for (const Bytes pool : pools)
    devices_.push_back({.pool = pool, .missing = {}, .in_debt = {}, .overcommitted = {}});
}

// ---- The tree ----

TenantId Ledger::add_tenant(Quotas quotas, TenantId parent) {
  GPUMEM_CHECK(quotas.size() == devices_.size(), "one quota a device");
  const TenantId tenant{++last_tenant_};
  tenants_[tenant] = {
      .parent = parent, .quotas = std::move(quotas), .accounts = std::vector<Account>(devices_.size())};
  join(tenant);
  return tenant;
}

TenantId Ledger::add_part(Quotas quotas, TenantId whole) {
  const TenantId part = add_tenant(std::move(quotas), whole);
  node(part).is_part = true;
  return part;
}

void Ledger::remove_tenant(TenantId tenant) {
  GPUMEM_CHECK(is_idle(tenant), "a tenant with charges cannot go");
  GPUMEM_CHECK(node(tenant).children == 0, "a tenant with others below it cannot go");
  leave(tenant);
  for (Device& device : devices_) {
    device.in_debt.erase(tenant);
    device.overcommitted.erase(tenant);
    device.unanswered.erase(tenant);
  }
  tenants_.erase(tenant);
}

void Ledger::set_quotas(TenantId tenant, Quotas quotas) {
  GPUMEM_CHECK(quotas.size() == devices_.size(), "one quota a device");
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

// Adds the node, with all below it, to the sums of its parents.
void Ledger::join(TenantId tenant) {
  Node& joining = node(tenant);
  Node& above = node_or_root(joining.parent);
  ++above.children;
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    const Quota& quota = joining.quotas[device];
    derive(joining.accounts[device], quota);
    count_in(above.accounts[device].members, figures(joining, device), quota, tenant);
    note_limit(tenant, device);
    touch(tenant, device);
    if (joining.is_part) above.accounts[device].reservation += joining.accounts[device].reservation;
    update(joining.parent, device, [&](Charges& above) { add(above, charges(tenant, device)); },
           {figures(joining, device).counted, {}});
    if (!promised(tenant, device).is_zero()) ++devices_[device].promises_revision;
  }
}

void Ledger::leave(TenantId tenant) {
  Node& leaving = node(tenant);
  Node& above = node_or_root(leaving.parent);
  --above.children;
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    count_out(above.accounts[device].members, figures(leaving, device), leaving.quotas[device], tenant);
    if (leaving.is_part) above.accounts[device].reservation -= leaving.accounts[device].reservation;
    update(leaving.parent, device, [&](Charges& above) { subtract(above, charges(tenant, device)); },
           {{}, figures(leaving, device).counted});
    changed_.emplace_back(leaving.parent, device);
    touch(tenant, device);
    if (!promised(tenant, device).is_zero()) ++devices_[device].promises_revision;
  }
}

// ---- Charges ----

template <class Change>
void Ledger::update(TenantId tenant, DeviceIndex device, Change&& change, Shift shift) {
  count_change(device);
  touch(tenant, device);
  for (TenantId id = tenant; id;) {
    Node& one = node(id);
    Account& own = one.accounts[device];
    const Quota& quota = one.quotas[device];
    Members& above = node_or_root(one.parent).accounts[device].members;
    const Figures before = figures(one, device);
    change(own.charges);
    own.outside = own.outside + shift.more - shift.less;
    derive(own, quota);
    const Figures after = figures(one, device);
    above.kept = above.kept - before.kept + after.kept;
    above.pool_kept = above.pool_kept - before.pool_kept + after.pool_kept;
    above.promised = above.promised - before.promised + after.promised;
    rank(above, before.borrowed(), after.borrowed(), quota, id);
    note_limit(id, device);
    shift = {after.counted, before.counted};
    id = one.parent;
  }
  Account& root = root_.accounts[device];
  change(root.charges);
  root.outside = root.outside + shift.more - shift.less;
  derive(root, root_.quotas[device]);
}

void Ledger::derive(Account& account, const Quota& quota) {
  account.kept = std::max(quota.guarantee.minus(account.used()), account.members.kept);
  account.pool_kept = std::max(quota.guarantee.minus(account.charges.total()), account.members.pool_kept);
  account.promised = std::max(quota.guarantee, account.members.promised);
}

void Ledger::note_limit(TenantId tenant, DeviceIndex device) {
  const auto note = [tenant](std::set<TenantId>& set, bool belongs) {
    if (belongs)
      set.insert(tenant);
    else if (!set.empty())
      set.erase(tenant);
  };
  const Node& one = node(tenant);
  const Figures own = figures(one, device);
  const Bytes limit = one.quotas[device].limit;
  note(devices_[device].in_debt, own.used() > limit);
  note(devices_[device].overcommitted, one.children != 0 && own.kept > limit.minus(own.pool));
}

void Ledger::count_in(Members& members, const Figures& child, const Quota& quota, TenantId id) {
  members.kept += child.kept;
  members.pool_kept += child.pool_kept;
  members.promised += child.promised;
  rank(members, {}, child.borrowed(), quota, id);
}

void Ledger::count_out(Members& members, const Figures& child, const Quota& quota, TenantId id) {
  members.kept -= child.kept;
  members.pool_kept -= child.pool_kept;
  members.promised -= child.promised;
  rank(members, child.borrowed(), {}, quota, id);
}

void Ledger::rank(Members& members, Bytes before, Bytes after, const Quota& quota, TenantId id) {
  if (before == after) return;
  if (!before.is_zero()) {
    const std::size_t erased = members.borrowers.erase({quota.priority, quota.share_of(before), id});
    GPUMEM_CHECK(erased == 1, "a borrower has its place");
  }
  if (!after.is_zero()) members.borrowers.insert({quota.priority, quota.share_of(after), id});
}

void Ledger::reserve(TenantId tenant, DeviceIndex device, Bytes bytes, const GrantTerms& terms) {
  const Bytes covered = std::min(bytes, reserved(tenant, device));
  GPUMEM_CHECK(verdict(tenant, device, bytes - covered, terms) == Verdict::kFits,
               "only what fits is charged");
  update(tenant, device, [&](Charges& charges) {
    charges[Charge::kReserved] -= covered;
    charges[Charge::kOffered] += bytes;
  });
  changed_.emplace_back(tenant, device);
  GPUMEM_CHECK(charges(device).total() <= pool(device), "charges within the pool");
}

void Ledger::adopt(TenantId tenant, DeviceIndex device, Bytes bytes, Charge state) {
  update(tenant, device, [&](Charges& charges) { charges[state] += bytes; });
  changed_.emplace_back(tenant, device);
  GPUMEM_CHECK(charges(device).total() <= pool(device), "charges within the pool");
}

// ---- Reservations ----

void Ledger::add_to_reservation(TenantId leaf, DeviceIndex device, Bytes more, Bytes less) {
  Node& one = node(leaf);
  const auto change = [&](Bytes& reservation) { reservation = reservation + more - less; };
  change(one.accounts[device].reservation);
  if (one.is_part) change(node(one.parent).accounts[device].reservation);
}

Bytes Ledger::refilled(TenantId leaf, DeviceIndex device, Bytes bytes) const {
  const Account& own = account(leaf, device);
  const Bytes on_loan = own.charges.total() - own.charges[Charge::kReserved] - bytes;
  return own.reservation.minus(on_loan) - own.charges[Charge::kReserved];
}

void Ledger::add_reservation(TenantId leaf, DeviceIndex device, Bytes bytes) {
  GPUMEM_CHECK(!has_members(leaf), "only leaves have reservations");
  add_to_reservation(leaf, device, bytes, {});
  const Bytes unused = refilled(leaf, device, {});
  update(leaf, device, [&](Charges& charges) { charges[Charge::kReserved] += unused; });
  changed_.emplace_back(leaf, device);
  GPUMEM_CHECK(charges(device).total() <= pool(device), "charges within the pool");
}

void Ledger::give_up_reserved(TenantId leaf, DeviceIndex device, Bytes bytes) {
  add_to_reservation(leaf, device, {}, bytes);
  update(leaf, device, [&](Charges& charges) { charges[Charge::kReserved] -= bytes; });
  changed_.emplace_back(leaf, device);
}

void Ledger::end_reservation(TenantId leaf, DeviceIndex device) {
  const Bytes unused = reserved(leaf, device);
  add_to_reservation(leaf, device, {}, reservation(leaf, device));
  update(leaf, device, [&](Charges& charges) { charges[Charge::kReserved] -= unused; });
  changed_.emplace_back(leaf, device);
}

// The use stays the same, and with it all figures that depend on it.
void Ledger::move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to) {
  count_change(device);
  touch(tenant, device);
  const auto move_in = [&](Charges& charges) {
    charges[from] -= bytes;
    charges[to] += bytes;
  };
  for (TenantId id = tenant; id;) {
    Node& one = node(id);
    move_in(one.accounts[device].charges);
    id = one.parent;
  }
  move_in(root_.accounts[device].charges);
}

void Ledger::release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from) {
  const Bytes refill = refilled(tenant, device, bytes);
  update(tenant, device, [&](Charges& charges) {
    charges[from] -= bytes;
    charges[Charge::kReserved] += refill;
  });
  changed_.emplace_back(tenant, device);
}

void Ledger::charge_outside(TenantId tenant, DeviceIndex device, Bytes bytes) {
  update(tenant, device, [](Charges&) {}, {bytes, {}});
  devices_[device].outside += bytes;
  changed_.emplace_back(tenant, device);
}

void Ledger::give_to_driver(TenantId tenant, DeviceIndex device, Bytes bytes, const GrantTerms& terms) {
  GPUMEM_CHECK(verdict(tenant, device, bytes, terms) == Verdict::kFits, "only what fits is given away");
  charge_outside(tenant, device, bytes);
  set_missing(device, missing(device) + bytes);
}

void Ledger::release_outside(TenantId tenant, DeviceIndex device, Bytes bytes) {
  update(tenant, device, [](Charges&) {}, {{}, bytes});
  devices_[device].outside -= bytes;
  changed_.emplace_back(tenant, device);
}

void Ledger::transfer(TenantId from, TenantId to, DeviceIndex device, const Charges& moved, Bytes outside) {
  add_to_reservation(from, device, {}, refilled(from, device, moved.total()));
  update(from, device, [&](Charges& charges) { subtract(charges, moved); }, {{}, outside});
  const Bytes covered = std::min(moved.total(), reserved(to, device));
  const auto move_in = [&](Charges& charges) {
    add(charges, moved);
    charges[Charge::kReserved] -= covered;
  };
  update(to, device, move_in, {outside, {}});
  changed_.emplace_back(from, device);
  changed_.emplace_back(to, device);
}

// A store can count bytes twice for a moment: as given away by a request, and as lost.
void Ledger::set_missing(DeviceIndex device, Bytes bytes) {
  bytes = std::min(bytes, devices_[device].pool);
  if (devices_[device].missing == bytes) return;
  count_change(device);
  devices_[device].missing = bytes;
  changed_.emplace_back(TenantId{}, device);
}

void Ledger::set_creatable(DeviceIndex device, Bytes bytes) {
  if (devices_[device].creatable == bytes) return;
  count_change(device);
  devices_[device].creatable = bytes;
}

void Ledger::set_lending(DeviceIndex device, bool lends) {
  if (devices_[device].lends == lends) return;
  count_change(device);
  devices_[device].lends = lends;
  ++devices_[device].promises_revision;
  changed_.emplace_back(TenantId{}, device);
}

void Ledger::set_unanswered(TenantId tenant, DeviceIndex device, Bytes bytes) {
  if (unanswered(tenant, device) == bytes) return;
  count_change(device);
  Device& one = devices_[device];
  if (bytes.is_zero())
    one.unanswered.erase(tenant);
  else
    one.unanswered[tenant] = bytes;
  ++one.promises_revision;
  changed_.emplace_back(TenantId{}, device);
}

void Ledger::take_changed(Changes& into) {
  into.clear();
  into.swap(changed_);
  std::erase_if(into, [&](const auto& one) { return one.first && !tenants_.contains(one.first); });
}

}  // namespace gpumem::core
