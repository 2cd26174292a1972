#include "daemon/core/ledger.h"

#include <algorithm>
#include <limits>

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

Ledger::Ledger(const std::vector<Bytes>& pools) : tenants_(1) {
  const Quota unlimited{{}, {std::numeric_limits<std::uint64_t>::max()}};
  const auto quotas = std::make_shared<const Quotas>(pools.size(), unlimited);
  root_.quotas = {quotas, quotas->data()};
  for (const Bytes pool : pools) {
    devices_.push_back({.pool = pool, .missing = {}, .in_debt = {}, .overcommitted = {}});
    root_.accounts.emplace_back().members = std::make_unique<Members>();
  }
}

// ---- The tree ----

TenantId Ledger::add_tenant(Quotas quotas, TenantId parent) {
  return add_tenant(std::make_shared<const Quotas>(std::move(quotas)), parent);
}

TenantId Ledger::add_tenant(std::shared_ptr<const Quotas> quotas, TenantId parent) {
  const TenantId tenant = next_id();
  Node& added = tenants_[slot(tenant)];
  added.id = tenant;
  added.parent = parent;
  added.quotas = checked(std::move(quotas));
  join(tenant);
  return tenant;
}

// The vector lives on; nobody goes through it again.
std::shared_ptr<const Quota[]> Ledger::checked(std::shared_ptr<const Quotas> quotas) const {
  GPUMEM_CHECK(quotas->size() == devices_.size(), "one quota a device");
  const Quota* first = quotas->data();
  return {std::move(quotas), first};
}

// Ids ascend in the order in which tenants come; what is below is the slot.
TenantId Ledger::next_id() {
  std::size_t slot = tenants_.size();
  if (vacant_.empty()) {
    GPUMEM_CHECK(slot < kMaxTenants, "not more tenants than there are slots");
    tenants_.emplace_back();
  } else {
    slot = vacant_.back();
    vacant_.pop_back();
  }
  return TenantId{++last_tenant_ * kMaxTenants + slot};
}

void Ledger::remove_tenant(TenantId tenant) {
  GPUMEM_CHECK(is_idle(tenant), "a tenant with charges cannot go");
  GPUMEM_CHECK(node(tenant).children == 0, "a tenant with others below it cannot go");
  leave(tenant);
  for (Device& device : devices_) {
    device.in_debt.erase(tenant);
    device.overcommitted.erase(tenant);
  }
  tenants_[slot(tenant)] = {};
  vacant_.push_back(slot(tenant));
}

void Ledger::set_quotas(TenantId tenant, std::shared_ptr<const Quotas> quotas) {
  auto checked_quotas = checked(std::move(quotas));
  leave(tenant);
  node(tenant).quotas = std::move(checked_quotas);
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
    const Quota& quota = joining.quota(device);
    if (!joining.accounts.empty()) derive(joining.accounts[device], quota);
    auto& members = open(above)[device].members;
    if (!members) members = std::make_unique<Members>();
    count_in(*members, figures(joining, device), quota, tenant);
    note_limit(tenant, device);
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
    count_out(*above.accounts[device].members, figures(leaving, device), leaving.quota(device), tenant);
    update(leaving.parent, device, [&](Charges& above) { subtract(above, charges(tenant, device)); },
           {{}, figures(leaving, device).counted});
    changed_.emplace_back(leaving.parent, device);
    if (!promised(tenant, device).is_zero()) ++devices_[device].promises_revision;
  }
}

std::vector<Ledger::Account>& Ledger::open(Node& one) {
  if (!one.accounts.empty()) return one.accounts;
  one.accounts.resize(devices_.size());
  for (DeviceIndex device = 0; device < one.accounts.size(); ++device)
    derive(one.accounts[device], one.quota(device));
  return one.accounts;
}

void Ledger::close_if_idle(TenantId tenant) {
  std::vector<Account>& accounts = node(tenant).accounts;
  const auto idle = [](const Account& account) { return account.used().is_zero() && !account.members; };
  if (std::ranges::all_of(accounts, idle)) std::vector<Account>().swap(accounts);
}

// ---- Charges ----

template <class Change>
void Ledger::update(TenantId tenant, DeviceIndex device, Change&& change, Shift shift) {
  count_change(device);
  for (TenantId id = tenant; id;) {
    Node& one = node(id);
    Account& own = open(one)[device];
    const Quota& quota = one.quota(device);
    Members& above = *node_or_root(one.parent).accounts[device].members;
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
  derive(root, root_.quota(device));
}

void Ledger::derive(Account& account, const Quota& quota) {
  account.kept = std::max(quota.guarantee.minus(account.used()), account.members_kept());
  account.pool_kept = std::max(quota.guarantee.minus(account.charges.total()), account.members_pool_kept());
  account.promised = std::max(quota.guarantee, account.members ? account.members->promised : Bytes{});
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
  const Bytes limit = one.quota(device).limit;
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
  GPUMEM_CHECK(verdict(tenant, device, bytes, terms) == Verdict::kFits, "only what fits is charged");
  update(tenant, device, [&](Charges& charges) { charges[Charge::kOffered] += bytes; });
  changed_.emplace_back(tenant, device);
  GPUMEM_CHECK(charges(device).total() <= pool(device), "charges within the pool");
}

void Ledger::adopt(TenantId tenant, DeviceIndex device, Bytes bytes, Charge state) {
  update(tenant, device, [&](Charges& charges) { charges[state] += bytes; });
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
  update(tenant, device, [&](Charges& charges) { charges[from] -= bytes; });
  close_if_idle(tenant);
  changed_.emplace_back(tenant, device);
}

void Ledger::charge_outside(TenantId tenant, DeviceIndex device, Bytes bytes) {
  update(tenant, device, [](Charges&) {}, {bytes, {}});
  changed_.emplace_back(tenant, device);
}

void Ledger::release_outside(TenantId tenant, DeviceIndex device, Bytes bytes) {
  update(tenant, device, [](Charges&) {}, {{}, bytes});
  close_if_idle(tenant);
  changed_.emplace_back(tenant, device);
}

void Ledger::transfer(TenantId from, TenantId to, DeviceIndex device, const Charges& moved, Bytes outside) {
  update(from, device, [&](Charges& charges) { subtract(charges, moved); }, {{}, outside});
  update(to, device, [&](Charges& charges) { add(charges, moved); }, {outside, {}});
  close_if_idle(from);
  changed_.emplace_back(from, device);
  changed_.emplace_back(to, device);
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

void Ledger::take_changed(Changes& into) {
  into.clear();
  into.swap(changed_);
  std::erase_if(into, [&](const auto& one) { return one.first && !knows(one.first); });
}

}  // namespace gpumem::core
