#include "daemon/core/broker.h"

#include <algorithm>

#include "base/check.h"

// Sessions, slices, tenants, policy. The way of memory is in broker_memory.cc, listings in broker_views.cc.

namespace gpumem::core {
namespace {

std::vector<Bytes> pools_of(const Policy& policy) {
  std::vector<Bytes> pools;
  for (const DevicePolicy& device : policy.devices) pools.push_back(device.pool);
  return pools;
}

// What a tenant has that no rule covers any more: no growth.
std::vector<Quota> nothing(const Policy& policy) { return std::vector<Quota>(policy.devices.size()); }

}  // namespace

Broker::Broker(Policy policy) : policy_(std::move(policy)), ledger_(pools_of(policy_)), arbiter_(ledger_) {
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
    stores_.emplace_back(i, policy_.devices[i].pool, policy_.devices[i].granularity, extent_ids_, job_ids_);
    ledger_.set_missing(i, stores_[i].missing());
  }
  for (const TenantRule& rule : policy_.tenants) {
    const TenantId id = ledger_.add_tenant(rule.quotas);
    tenants_[id] = {id, rule.name, true, 0};
    tenant_by_name_[rule.name] = id;
  }
}

Result<SessionId> Broker::open_session(const Peer& peer, std::string label, TimePoint now) {
  if (draining_) return Error{Code::kUnavailable, "the broker is stopping"};
  if (sessions_.size() >= policy_.max_sessions) {
    return Error{Code::kResourceExhausted, "the broker has " + std::to_string(sessions_.size()) +
                                               " sessions, its max_sessions; close some or raise it"};
  }
  auto match = tenant_of(policy_, peer);
  if (!match) return match.error();
  auto tenant = admit_tenant(*match);
  if (!tenant) return tenant.error();
  if (tenants_.at(*tenant).sessions >= policy_.max_sessions_per_tenant) {
    return Error{Code::kResourceExhausted,
                 "tenant '" + match->name + "' has " + std::to_string(policy_.max_sessions_per_tenant) +
                     " sessions, its max_sessions_per_tenant; close some or raise it"};
  }
  const SessionId id = session_ids_.next();
  Session session;
  session.id = id;
  session.tenant = *tenant;
  session.peer = peer;
  session.label = std::move(label);
  session.since = now;
  sessions_.emplace(id, std::move(session));
  ++tenants_.at(*tenant).sessions;
  // A new guarantee can put a waiter out of all hope, and so no longer ahead of others.
  settle(now);
  return id;
}

Result<TenantId> Broker::admit_tenant(const TenantMatch& match) {
  if (const auto known = tenant_by_name_.find(match.name); known != tenant_by_name_.end())
    return known->second;
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
    const auto sum = ledger_.guaranteed(i).plus(match.quotas[i].guarantee);
    if (!sum || *sum > ledger_.pool(i)) {
      return Error{Code::kResourceExhausted,
                   "no room for another guarantee of " + to_string(match.quotas[i].guarantee) + " on " +
                       policy_.devices[i].uuid + ": " + to_string(ledger_.guaranteed(i)) + " of " +
                       to_string(ledger_.pool(i)) + " are promised already"};
    }
  }
  const TenantId id = ledger_.add_tenant(match.quotas);
  tenants_[id] = {id, match.name, false, 0};
  tenant_by_name_[match.name] = id;
  return id;
}

void Broker::retire_tenant(TenantId id) {
  const Tenant& tenant = tenants_.at(id);
  if (tenant.configured || tenant.sessions != 0 || !ledger_.is_idle(id)) return;
  ledger_.remove_tenant(id);
  tenant_by_name_.erase(tenant.name);
  tenants_.erase(id);
}

void Broker::session_ended(SessionId id, Farewell farewell, TimePoint now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  session.ended = true;
  arbiter_.remove_all_of(id);
  std::erase_if(granted_, [&](const auto& entry) {
    const Request& request = entry.second;
    if (request.session != id) return false;
    stores_[request.device].withdraw(request.id);
    undo(request);
    return true;
  });
  if (farewell == Farewell::kLost) {
    for (const LeaseId id_on_loan : session.leases) {
      // What was given back before is being freed all the same.
      if (Lease& lease = leases_.at(id_on_loan); !lease.in_store) set_state(lease, Charge::kQuarantined);
    }
  } else {
    release_leases(session);
  }
  forget_if_done(id);
  settle(now);
}

void Broker::exited(SessionId id, TimePoint now) { session_ended(id, Farewell::kExited, now); }

void Broker::release_leases(Session& session) {
  for (const LeaseId lease : session.leases) take_back(leases_.at(lease));
}

void Broker::forget_if_done(SessionId id) {
  const Session& session = sessions_.at(id);
  if (!session.ended || !session.leases.empty()) return;
  const TenantId tenant = session.tenant;
  sessions_.erase(id);
  --tenants_.at(tenant).sessions;
  retire_tenant(tenant);
  effects_.emplace_back(ForgetSession{id});
}

Result<Session*> Broker::live_session(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.ended) {
    return Error{Code::kUnauthenticated, "the session has ended; connect again"};
  }
  return &found->second;
}

Result<Slice> Broker::open_slice(SessionId id, const std::string& device, Bytes limit, std::string label) {
  auto session = live_session(id);
  if (!session) return session.error();
  const auto found = std::ranges::find(policy_.devices, device, &DevicePolicy::uuid);
  if (found == policy_.devices.end()) {
    std::string known;
    for (const DevicePolicy& one : policy_.devices) known += " " + one.uuid;
    return Error{Code::kNotFound, "the broker lends no device '" + device + "', but:" + known};
  }
  const auto index = static_cast<DeviceIndex>(found - policy_.devices.begin());
  if (limit.is_zero()) limit = std::min(ledger_.quota((*session)->tenant, index).limit, found->pool);
  const auto rounded = limit.rounded_up(found->granularity);
  if (!rounded || *rounded > found->pool) {
    return Error{Code::kInvalidArgument, "a slice of " + to_string(limit) + " is more than the pool of " +
                                             to_string(found->pool) + " on " + device};
  }
  if (rounded->is_zero()) {
    return Error{Code::kPermissionDenied,
                 "tenant '" + tenant_name(id) + "' may have no memory of " + device + " (its limit is 0)"};
  }
  if ((*session)->slices.size() >= policy_.max_slices_per_session) {
    return Error{Code::kResourceExhausted, "the session has " + std::to_string((*session)->slices.size()) +
                                               " slices, as many as it may"};
  }
  Slice slice{slice_ids_.next(), index, *rounded, std::move(label), {}, {}};
  (*session)->slices.emplace(slice.id, slice);
  return slice;
}

Result<void> Broker::close_slice(SessionId id, SliceId slice_id, TimePoint now) {
  auto session = live_session(id);
  if (!session) return session.error();
  const auto slice = (*session)->slices.find(slice_id);
  if (slice == (*session)->slices.end()) return Error{Code::kNotFound, "the session has no such slice"};
  if (!slice->second.held.is_zero() || !arbiter_.waiting_bytes(slice_id).is_zero()) {
    return Error{Code::kFailedPrecondition,
                 "the slice still holds or awaits memory; return its leases first"};
  }
  // Leases on their way back outlive the slice: they are charged to the session's tenant.
  (*session)->slices.erase(slice);
  settle(now);
  return {};
}

Result<void> Broker::apply(Policy policy, TimePoint now) {
  if (auto ok = check(policy); !ok) return ok.error();
  const auto same = [](const DevicePolicy& a, const DevicePolicy& b) {
    return a.uuid == b.uuid && a.pool == b.pool && a.granularity == b.granularity;
  };
  if (!std::ranges::equal(policy.devices, policy_.devices, same)) {
    return Error{Code::kFailedPrecondition,
                 "the devices or what is reserved of them have changed: that needs a "
                 "restart of the broker"};
  }
  std::map<std::string, std::vector<Quota>> quotas;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.sessions != 0) quotas[tenant.name] = policy.others.value_or(nothing(policy));
  }
  for (const TenantRule& rule : policy.tenants) quotas[rule.name] = rule.quotas;
  for (DeviceIndex i = 0; i < policy.devices.size(); ++i) {
    Bytes sum;
    for (const auto& [name, quota] : quotas) sum = sum.plus(quota[i].guarantee).value_or(Bytes{~0ULL});
    if (sum > ledger_.pool(i)) {
      return Error{Code::kInvalidArgument,
                   "the guarantees of the tenants that are connected would exceed the pool of " +
                       policy.devices[i].uuid};
    }
  }
  policy_ = std::move(policy);
  for (auto& [id, tenant] : tenants_) tenant.configured = false;
  for (const auto& [name, quota] : quotas) {
    const auto known = tenant_by_name_.find(name);
    if (known != tenant_by_name_.end()) {
      ledger_.set_quotas(known->second, quota);
    } else {
      const TenantId id = ledger_.add_tenant(quota);
      tenants_[id] = {id, name, true, 0};
      tenant_by_name_[name] = id;
    }
  }
  for (const TenantRule& rule : policy_.tenants) tenants_.at(tenant_by_name_.at(rule.name)).configured = true;
  std::vector<TenantId> all;
  for (const auto& [id, tenant] : tenants_) all.push_back(id);
  for (const TenantId id : all) retire_tenant(id);
  ++generation_;
  settle(now);
  return {};
}

void Broker::drain() {
  draining_ = true;
  for (const auto& [id, session] : sessions_) {
    for (const Request& request : arbiter_.remove_all_of(id)) {
      answer(request.id, {Code::kUnavailable, "the broker is stopping; what is mapped stays usable"});
    }
  }
}

}  // namespace gpumem::core
