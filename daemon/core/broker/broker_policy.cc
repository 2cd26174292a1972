#include <algorithm>

#include "daemon/core/broker/broker.h"

// Another policy while the broker runs.

namespace gpumem::core {

Result<void> Broker::apply(Policy policy, TimePoint now, std::string cause) {
  if (auto ok = check(policy); !ok) return ok.error();
  const auto same = [](const DevicePolicy& a, const DevicePolicy& b) {
    return a.uuid == b.uuid && a.pool == b.pool && a.granularity == b.granularity;
  };
  if (!std::ranges::equal(policy.devices, state_.policy.devices, same))
    return Error{
        Code::kFailedPrecondition,
        "the devices that are lent, [host], or what is reserved of them have changed: this needs a restart"};
  std::map<SessionId, std::string> owners;
  const Tenants::Rules members = members_under(policy, owners);
  const Tenants::Rules rules = state_.tenants.rules_under(policy, members);
  Policy with_connected = policy;
  with_connected.tenants.clear();
  for (const auto& [name, rule] : rules) with_connected.tenants.push_back(rule);
  if (auto ok = check(with_connected); !ok) return ok.error().in("with the tenants that are connected");
  if (auto ok = Tenants::check_parents(rules, members); !ok) return ok.error();

  std::vector<std::string> changed = state_.tenants.changed_under(rules);
  const bool other_aging = policy.aging != state_.policy.aging;
  for (DeviceIndex i = 0; i < policy.devices.size(); ++i) {
    policy.devices[i].has_display = state_.policy.devices[i].has_display;
    outside_.set_in_limit(i, policy.devices[i].contexts_in_limit);
  }
  state_.policy = std::move(policy);
  for (DeviceIndex i = 0; i < state_.policy.devices.size(); ++i)
    state_.ledger.set_lending(i, state_.policy.devices[i].reclaim.lend_guarantees);
  elastic_.follow_policy(now);
  state_.tenants.put_in_force(rules, state_.policy.tenants);
  std::map<SessionId, TenantId> others;
  for (const auto& [id, owner] : owners)
    if (state_.session(id).tenant_name != owner) others.emplace(id, state_.tenants.find(owner)->id);
  move(others, now);
  outside_.follow_policy();
  state_.tenants.retire_all_but(rules);
  if (other_aging) state_.arbiter.set_aging(state_.policy.aging, now);
  state_.arbiter.rebuild();
  reservations_.pay();
  growths_.refuse_infeasible(now);
  reclaimer_.replan();
  ++generation_;
  if (changed.empty()) changed.emplace_back();
  for (const std::string& tenant : changed) {
    Event& event = state_.outbox.note(Event::Kind::kQuota, now);
    event.tenant = tenant;
    event.words = cause;
  }
  sharer_.note_all_due();
  serve(now);
  return {};
}

bool Broker::set_display(DeviceIndex device, bool has_display, TimePoint now) {
  DevicePolicy& policy = state_.policy.devices[device];
  const bool was_elastic = policy.is_elastic();
  policy.has_display = has_display;
  if (policy.is_elastic() == was_elastic) return false;
  elastic_.follow_policy(now);
  serve(now);
  return true;
}

// Every session is matched anew. A session that no rule covers any more keeps its tenant, which may not grow.
Tenants::Rules Broker::members_under(const Policy& policy, std::map<SessionId, std::string>& owners) const {
  Tenants::Rules members;
  for (const auto& [id, session] : state_.sessions) {
    const TenantMatch match = tenant_of_session(policy, session->peer, session->tenant_name);
    owners[id] = match.name;
    members.try_emplace(
        match.name,
        TenantRule{.name = match.name, .parent = match.parent, .uid = {}, .gid = {}, .quotas = match.quotas});
  }
  return members;
}

// The sessions are charged to other tenants from now on.
void Broker::move(std::map<SessionId, TenantId> owners, TimePoint now) {
  const std::vector<Region> lost = published_.move(owners, now);
  jobs_.move(owners);
  for (const auto& [id, to] : owners) {
    Session& session = state_.session(id);
    const TenantId rest = state_.tenants.leaf_of(to);
    const bool stays = session.job && state_.tenants.owner_of(session.leaf) == to;
    const TenantId leaf = stays ? session.leaf : rest;
    for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device) {
      const auto found = session.outside.find(device);
      const OutsideCharge outside = found == session.outside.end() ? OutsideCharge{} : found->second;
      if (!stays) state_.transfer(session, leaf, device, session.holding(device).charges);
      const DevicePolicy& policy = state_.policy.devices[device];
      const TenantId besides = policy.is_host() ? leaf : rest;
      state_.transfer_outside(state_.charged_for_contexts(session, device),
                              policy.contexts_in_limit ? leaf : besides, device, outside.of_contexts(),
                              outside.unasked_of_contexts());
      state_.transfer_outside(state_.charged_besides(session, device), besides, device,
                              outside.besides_contexts(), outside.past);
    }
    if (!stays) session.job = {};
    state_.arbiter.set_tenant(session.id, leaf, session.job, rest);
    state_.tenants.leave(session.leaf, id);
    session.tenant = to;
    session.leaf = leaf;
    session.tenant_name = state_.tenants.name(to);
    state_.outbox.record(checkpoint_of(session));
    state_.tenants.join(leaf, id);
    state_.outbox.touch(id);
    leases_.follow(session);
    for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device)
      outside_.excuse_context(session, device);
  }
  for (const Region& region : lost) leases_.let_go_unkept(region, now);
  for (const auto& [id, owner] : owners) sharer_.follow(state_.session(id));
}

}  // namespace gpumem::core
