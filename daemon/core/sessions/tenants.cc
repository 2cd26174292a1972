#include "daemon/core/sessions/tenants.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {
namespace {

// The quotas of a tenant that no rule covers any more: no growth.
Quotas nothing(const Policy& policy) { return Quotas(policy.devices.size()); }

}  // namespace

Result<TenantId> Tenants::admit(const Policy& policy, const TenantMatch& match) {
  if (const Tenant* known = find(match.name)) return known->id;
  if (auto room = check_room(policy, match); !room) return room.error();
  return add(match.name, match.quotas, parent_of(match));
}

TenantId Tenants::add(const std::string& name, Quotas quotas, TenantId parent) {
  const TenantId id = ledger_.add_tenant(std::move(quotas), parent);
  tenants_[id] = {.id = id, .owner = id, .name = name, .configured = false, .sessions = {}};
  by_name_[name] = id;
  return id;
}

TenantId Tenants::parent_of(const TenantMatch& match) const {
  return match.parent.empty() ? TenantId{} : by_name_.at(match.parent);
}

// Another guarantee has to fit into what is promised already, on every level.
Result<void> Tenants::check_room(const Policy& policy, const TenantMatch& match) const {
  for (DeviceIndex device = 0; device < policy.devices.size(); ++device) {
    const std::string on = " on " + name_of(policy, device);
    Bytes more = match.quotas[device].guarantee;
    for (TenantId above = parent_of(match); above && !more.is_zero(); above = ledger_.parent(above)) {
      const Quota& quota = ledger_.quota(above, device);
      const Bytes members = ledger_.members_promised(above, device) + more;
      if (members > quota.limit) {
        return Error{Code::kResourceExhausted, "no room for another guarantee of " + to_string(more) + on +
                                                   " below tenant '" + name(above) + "', whose limit is " +
                                                   to_string(quota.limit) + "; ask the administrator"};
      }
      more = std::max(quota.guarantee, members) - ledger_.promised(above, device);
    }
    if (const auto sum = ledger_.promised(device).plus(more); !sum || *sum > ledger_.pool(device)) {
      return Error{Code::kResourceExhausted,
                   "no room for another guarantee of " + to_string(match.quotas[device].guarantee) + on +
                       ": " + to_string(ledger_.promised(device)) + " of " + to_string(ledger_.pool(device)) +
                       " are promised already; ask the administrator"};
    }
  }
  return {};
}

void Tenants::retire(TenantId id) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return;
  const Tenant& tenant = found->second;
  if (tenant.configured || !tenant.sessions.empty() || !ledger_.is_idle(id) || ledger_.has_members(id))
    return;
  const TenantId owner = tenant.owner;
  if (owner == id) {
    by_name_.erase(tenant.name);
  } else {
    Tenant& above = tenants_.at(owner);
    const bool is_rest = above.rest == id;
    if (is_rest && above.leaves.size() > 1) return;  // as long as there are jobs
    if (is_rest) above.rest = {};
    above.leaves.erase(id);
  }
  ledger_.remove_tenant(id);
  tenants_.erase(found);
  if (owner == id) return;
  if (const TenantId rest = at(owner).rest) retire(rest);
  retire(owner);
}

// ---- Leaves ----

TenantId Tenants::add_leaf(TenantId tenant, std::string name, Quotas quotas) {
  const TenantId leaf = ledger_.add_part(std::move(quotas), tenant);
  tenants_[leaf] = {
      .id = leaf, .owner = tenant, .name = std::move(name), .configured = false, .sessions = {}};
  tenants_.at(tenant).leaves.insert(leaf);
  return leaf;
}

TenantId Tenants::divide(TenantId tenant) {
  const TenantId rest = add_leaf(tenant, name(tenant), Quotas(ledger_.device_count(), {{}, kUnlimited}));
  for (DeviceIndex device = 0; device < ledger_.device_count(); ++device)
    ledger_.transfer(tenant, rest, device, Charges(ledger_.charges(tenant, device)),
                     ledger_.outside(tenant, device));
  Tenant& divided = tenants_.at(tenant);
  Tenant& leaf = tenants_.at(rest);
  leaf.sessions = std::exchange(divided.sessions, {});
  leaf.sessions_below = divided.sessions_below;
  divided.rest = rest;
  return rest;
}

TenantId Tenants::add_job(TenantId tenant, std::string name, Quotas quotas) {
  const TenantId leaf = add_leaf(tenant, std::move(name), std::move(quotas));
  tenants_.at(leaf).configured = true;
  return leaf;
}

void Tenants::end_job(TenantId leaf) {
  tenants_.at(leaf).configured = false;
  retire(leaf);
}

void Tenants::move_job(TenantId leaf, TenantId to) {
  Tenant& moved = tenants_.at(leaf);
  const TenantId from = std::exchange(moved.owner, to);
  tenants_.at(from).leaves.erase(leaf);
  tenants_.at(to).leaves.insert(leaf);
  ledger_.set_parent(leaf, to);
  count_sessions();
}

std::vector<SessionId> Tenants::sessions_of(TenantId tenant) const {
  const Tenant& one = at(tenant);
  std::vector<SessionId> sessions(one.sessions.begin(), one.sessions.end());
  for (const TenantId leaf : one.leaves) {
    const auto& more = at(leaf).sessions;
    sessions.insert(sessions.end(), more.begin(), more.end());
  }
  return sessions;
}

void Tenants::retire_all_but(const Rules& rules) {
  std::vector<TenantId> ids;
  for (const auto& [id, tenant] : tenants_) ids.push_back(id);
  for (const TenantId id : ids) retire(id);
  for (const auto& [name, id] : by_name_)
    if (!rules.contains(name)) ledger_.set_quotas(id, Quotas(ledger_.device_count()));
}

void Tenants::join(TenantId tenant, SessionId session) {
  tenants_.at(tenant).sessions.insert(session);
  for (TenantId id = tenant; id; id = ledger_.parent(id)) ++tenants_.at(id).sessions_below;
}

void Tenants::leave(TenantId tenant, SessionId session) {
  tenants_.at(tenant).sessions.erase(session);
  for (TenantId id = tenant; id; id = ledger_.parent(id)) --tenants_.at(id).sessions_below;
}

void Tenants::count_sessions() {
  for (auto& [id, tenant] : tenants_) tenant.sessions_below = 0;
  for (const auto& [id, tenant] : tenants_) {
    for (TenantId node = id; node; node = ledger_.parent(node))
      tenants_.at(node).sessions_below += tenant.sessions.size();
  }
}

const Tenant* Tenants::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tenants_.at(found->second);
}

bool Tenants::is_below(TenantId tenant, TenantId of) const {
  while (tenant && tenant != of) tenant = ledger_.parent(tenant);
  return tenant == of;
}

std::vector<TenantId> Tenants::with_members(TenantId id) const {
  if (!ledger_.has_members(id)) return {id};
  std::vector<TenantId> ids;
  for (const auto& [other, tenant] : tenants_) {
    if (is_below(other, id)) ids.push_back(other);
  }
  std::ranges::sort(ids);
  return ids;
}

// A tenant above others is charged with what they have, too.
bool Tenants::has_own_charges(TenantId id) const {
  if (at(id).rest || !ledger_.has_members(id)) return !ledger_.is_idle(id);
  std::vector<Bytes> of_members(ledger_.device_count());
  for (const auto& [other, tenant] : tenants_) {
    if (ledger_.parent(other) != id) continue;
    for (DeviceIndex device = 0; device < of_members.size(); ++device)
      of_members[device] += ledger_.used(other, device);
  }
  for (DeviceIndex device = 0; device < of_members.size(); ++device)
    if (ledger_.used(id, device) > of_members[device]) return true;
  return false;
}

// ---- Another policy ----

Tenants::Rules Tenants::rules_under(const Policy& policy, const Rules& members) const {
  Rules rules = members;
  // Processes that are no clients are charged too; whose they are then, the next look at the device tells.
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.owner != id || !sessions_of(id).empty() || !has_own_charges(id)) continue;
    TenantRule rule{
        .name = tenant.name, .uid = {}, .gid = {}, .quotas = policy.others.value_or(nothing(policy))};
    if (policy.others) rule.parent = policy.others_parent;
    rules.try_emplace(tenant.name, std::move(rule));
  }
  for (const TenantRule& rule : policy.tenants) rules[rule.name] = rule;
  return rules;
}

// A tenant is either charged itself or stands above others.
Result<void> Tenants::check_parents(const Rules& rules, const Rules& members) {
  for (const auto& [name, rule] : rules) {
    if (!members.contains(rule.parent)) continue;
    return Error{Code::kFailedPrecondition, "tenant '" + rule.parent + "' cannot become the parent of '" +
                                                name + "' while it has sessions of its own; end them first"};
  }
  return {};
}

std::vector<std::string> Tenants::changed_under(const Rules& rules) const {
  std::vector<std::string> changed;
  for (const auto& [name, rule] : rules) {
    const Tenant* known = find(name);
    bool same = known != nullptr;
    for (DeviceIndex device = 0; same && device < rule.quotas.size(); ++device)
      same = ledger_.quota(known->id, device) == rule.quotas[device];
    if (!same) changed.push_back(name);
  }
  for (const auto& [name, id] : by_name_)
    if (tenants_.at(id).configured && !rules.contains(name)) changed.push_back(name);
  return changed;
}

void Tenants::put_in_force(const Rules& rules, const std::vector<TenantRule>& configured) {
  for (const auto& [name, rule] : rules) {
    if (const Tenant* known = find(name))
      ledger_.set_quotas(known->id, rule.quotas);
    else
      add(name, rule.quotas, {});
  }
  // Parents once all are there; first all at the top, so that no change of places makes a circle on the way.
  for (const auto& [name, id] : by_name_) {
    tenants_.at(id).configured = false;
    if (ledger_.parent(id)) ledger_.set_parent(id, {});
  }
  for (const auto& [name, rule] : rules) {
    if (!rule.parent.empty()) ledger_.set_parent(by_name_.at(name), by_name_.at(rule.parent));
  }
  for (const TenantRule& rule : configured) tenants_.at(by_name_.at(rule.name)).configured = true;
  count_sessions();
}

}  // namespace gpumem::core
