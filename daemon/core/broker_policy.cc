#include <algorithm>

#include "base/check.h"
#include "daemon/core/broker.h"

// Tenants and their quotas: who there is, what they may have, and how that changes while the broker runs.

namespace gpumem::core {
namespace {

// What a tenant has that no rule covers any more: no growth.
Quotas nothing(const Policy& policy) { return Quotas(policy.devices.size()); }

}  // namespace

Result<TenantId> Broker::admit_tenant(const TenantMatch& match) {
  if (const auto known = tenant_by_name_.find(match.name); known != tenant_by_name_.end())
    return known->second;
  if (auto room = check_room(match); !room) return room.error();
  const TenantId parent = match.parent.empty() ? TenantId{} : tenant_by_name_.at(match.parent);
  // Those who have the same quotas, as all users without a rule do, share one copy.
  if (!default_quotas_ || *default_quotas_ != match.quotas)
    default_quotas_ = std::make_shared<const Quotas>(match.quotas);
  return add_tenant(match.name, default_quotas_, parent, false);
}

TenantId Broker::add_tenant(const std::string& name, std::shared_ptr<const Quotas> quotas, TenantId parent,
                            bool configured) {
  const TenantId id = ledger_.add_tenant(std::move(quotas), parent);
  tenants_[id] = {id, name, configured, {}};
  tenant_by_name_[name] = id;
  return id;
}

// Another guarantee has to fit into what is promised already, on every level.
Result<void> Broker::check_room(const TenantMatch& match) const {
  for (DeviceIndex device = 0; device < policy_.devices.size(); ++device) {
    Bytes more = match.quotas[device].guarantee;
    TenantId above = match.parent.empty() ? TenantId{} : tenant_by_name_.at(match.parent);
    for (; above && !more.is_zero(); above = ledger_.parent(above)) {
      const Quota& quota = ledger_.quota(above, device);
      const Bytes members = ledger_.members_promised(above, device) + more;
      if (members > quota.limit) {
        return Error{Code::kResourceExhausted, "no room for another guarantee of " + to_string(more) +
                                                   " on " + policy_.devices[device].uuid + " below tenant '" +
                                                   tenants_.at(above).name + "', whose limit is " +
                                                   to_string(quota.limit) + "; ask the administrator"};
      }
      more = std::max(quota.guarantee, members) - ledger_.promised(above, device);
    }
    if (const auto sum = ledger_.promised(device).plus(more); !sum || *sum > ledger_.pool(device)) {
      return Error{Code::kResourceExhausted,
                   "no room for another guarantee of " + to_string(match.quotas[device].guarantee) + " on " +
                       policy_.devices[device].uuid + ": " + to_string(ledger_.promised(device)) + " of " +
                       to_string(ledger_.pool(device)) + " are promised already; ask the administrator"};
    }
  }
  return {};
}

void Broker::retire_tenant(TenantId id) {
  const auto found = tenants_.find(id);
  if (found == tenants_.end()) return;
  const Tenant& tenant = found->second;
  if (tenant.configured || !tenant.sessions.empty() || !ledger_.is_idle(id)) return;
  ledger_.remove_tenant(id);
  tenant_by_name_.erase(tenant.name);
  tenants_.erase(found);
}

bool Broker::belongs(const std::string& tenant, const std::string& of) const {
  const auto found = tenant_by_name_.find(tenant);
  const auto group = tenant_by_name_.find(of);
  return found != tenant_by_name_.end() && group != tenant_by_name_.end() &&
         is_below(found->second, group->second);
}

bool Broker::is_below(TenantId tenant, TenantId of) const {
  while (tenant && tenant != of) tenant = ledger_.parent(tenant);
  return tenant == of;
}

// What each tenant will have: the rules, and those without one that are there.
Broker::Rules Broker::rules_under(const Policy& policy) const {
  Rules rules;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.sessions.empty() && ledger_.is_idle(id)) continue;
    TenantRule rule{
        .name = tenant.name, .uid = {}, .gid = {}, .quotas = policy.others.value_or(nothing(policy))};
    if (policy.others) rule.parent = policy.others_parent;
    rules[tenant.name] = std::move(rule);
  }
  for (const TenantRule& rule : policy.tenants) rules[rule.name] = rule;
  return rules;
}

Result<void> Broker::apply(Policy policy, TimePoint now, std::string cause) {
  if (auto ok = check(policy); !ok) return ok.error();
  const auto same = [](const DevicePolicy& a, const DevicePolicy& b) {
    return a.uuid == b.uuid && a.pool == b.pool && a.granularity == b.granularity;
  };
  if (!std::ranges::equal(policy.devices, policy_.devices, same)) {
    return Error{Code::kFailedPrecondition,
                 "the devices or what is reserved of them have changed: that needs a "
                 "restart of the broker"};
  }
  const Rules rules = rules_under(policy);
  Policy with_connected = policy;
  with_connected.tenants.clear();
  for (const auto& [name, rule] : rules) with_connected.tenants.push_back(rule);
  if (auto ok = check(with_connected); !ok) return ok.error().in("with the tenants that are connected");
  if (auto ok = check_parents(rules); !ok) return ok.error();
  std::vector<std::string> changed = changed_under(rules);
  const bool other_aging = policy.aging != policy_.aging;
  policy_ = std::move(policy);
  default_quotas_.reset();
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i)
    ledger_.set_lending(i, policy_.devices[i].reclaim.lend_guarantees);
  put_in_force(rules);
  if (other_aging) arbiter_.set_aging(policy_.aging, now);
  arbiter_.rebuild();
  press_anew();
  ++generation_;
  if (changed.empty()) changed.emplace_back();
  for (const std::string& tenant : changed) {
    Event& event = note(Event::Kind::kQuota, now);
    event.tenant = tenant;
    event.words = cause;
  }
  settle(now);
  return {};
}

// A tenant is either charged itself or stands above others.
Result<void> Broker::check_parents(const Rules& rules) const {
  for (const auto& [name, rule] : rules) {
    const auto parent = tenant_by_name_.find(rule.parent);
    if (parent == tenant_by_name_.end() || tenants_.at(parent->second).sessions.empty()) continue;
    return Error{Code::kFailedPrecondition, "tenant '" + rule.parent + "' cannot become the parent of '" +
                                                name + "' while it has sessions of its own; end them first"};
  }
  return {};
}

// Those whose quotas will be others than now.
std::vector<std::string> Broker::changed_under(const Rules& rules) const {
  std::vector<std::string> changed;
  for (const auto& [name, rule] : rules) {
    const auto known = tenant_by_name_.find(name);
    bool same = known != tenant_by_name_.end();
    for (DeviceIndex device = 0; same && device < policy_.devices.size(); ++device)
      same = ledger_.quota(known->second, device) == rule.quotas[device];
    if (!same) changed.push_back(name);
  }
  return changed;
}

void Broker::put_in_force(const Rules& rules) {
  std::map<Quotas, std::shared_ptr<const Quotas>> shared;  // thousands of tenants have few different quotas
  for (const auto& [name, rule] : rules) {
    auto& quotas = shared[rule.quotas];
    if (!quotas) quotas = std::make_shared<const Quotas>(rule.quotas);
    const auto known = tenant_by_name_.find(name);
    if (known != tenant_by_name_.end())
      ledger_.set_quotas(known->second, quotas);
    else
      add_tenant(name, quotas, {}, false);
  }
  // Parents once all are there; first all at the top, so that no change of places makes a circle on the way.
  for (const auto& [name, id] : tenant_by_name_) {
    tenants_.at(id).configured = false;
    if (ledger_.parent(id)) ledger_.set_parent(id, {});
  }
  for (const auto& [name, rule] : rules) {
    if (!rule.parent.empty()) ledger_.set_parent(tenant_by_name_.at(name), tenant_by_name_.at(rule.parent));
  }
  for (const TenantRule& rule : policy_.tenants) tenants_.at(tenant_by_name_.at(rule.name)).configured = true;
  // From here on the ledger has them; thousands of rules would keep a copy each.
  for (TenantRule& rule : policy_.tenants) Quotas().swap(rule.quotas);
  std::vector<TenantId> all;
  for (const auto& [id, tenant] : tenants_) all.push_back(id);
  for (const TenantId id : all) retire_tenant(id);
}

}  // namespace gpumem::core
