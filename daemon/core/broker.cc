#include "daemon/core/broker.h"

#include <algorithm>

#include "base/check.h"

// Sessions and slices. The way of memory is in broker_memory.cc; what else a broker does, in its other files.

namespace gpumem::core {
namespace {

std::vector<Bytes> pools_of(const Policy& policy) {
  std::vector<Bytes> pools;
  for (const DevicePolicy& device : policy.devices) pools.push_back(device.pool);
  return pools;
}

std::vector<Bytes> granularities_of(const Policy& policy) {
  std::vector<Bytes> granularities;
  for (const DevicePolicy& device : policy.devices) granularities.push_back(device.granularity);
  return granularities;
}

}  // namespace

Broker::Broker(Policy policy)
    : policy_(std::move(policy)),
      ledger_(pools_of(policy_)),
      arbiter_(ledger_, granularities_of(policy_), policy_.aging),
      pressure_(policy_.devices.size()) {
  for (DeviceIndex i = 0; i < policy_.devices.size(); ++i) {
    stores_.emplace_back(i, policy_.devices[i].pool, policy_.devices[i].granularity, extent_ids_, job_ids_);
    ledger_.set_missing(i, stores_[i].missing());
    ledger_.set_lending(i, policy_.devices[i].reclaim.lend_guarantees);
  }
  put_in_force(rules_under(policy_));
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
  if (tenants_.at(*tenant).sessions.size() >= policy_.max_sessions_per_tenant) {
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
  note(Event::Kind::kOpened, sessions_.emplace(id, std::move(session)).first->second, now);
  tenants_.at(*tenant).sessions.insert(id);
  // A new guarantee can put a waiter out of all hope, and so no longer ahead of others.
  settle(now);
  return id;
}

void Broker::session_ended(SessionId id, Farewell farewell, TimePoint now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  press_anew();
  if (!std::exchange(session.ended, true)) note(Event::Kind::kEnded, session, now);
  if (farewell == Farewell::kExited) {
    note(Event::Kind::kDied, session, now);
    sentences_.erase(id);  // carried out: there is nobody left to kill
  }
  arbiter_.remove_all_of(id);
  std::erase_if(assemblies_, [&](const auto& entry) {
    if (entry.second.granted.request.session != id) return false;
    undo(entry.second);
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
  Session& session = sessions_.at(id);
  if (!session.ended || !session.leases.empty()) return;
  const TenantId tenant = session.tenant;
  end_outside(session);
  forget_pressure(id);
  sessions_.erase(id);
  tenants_.at(tenant).sessions.erase(id);
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

Result<DeviceIndex> Broker::find_device(const std::string& uuid) const {
  const auto found = std::ranges::find(policy_.devices, uuid, &DevicePolicy::uuid);
  if (found != policy_.devices.end()) return static_cast<DeviceIndex>(found - policy_.devices.begin());
  std::string known;
  for (const DevicePolicy& one : policy_.devices) known += " " + one.uuid;
  return Error{Code::kNotFound, "the broker lends no device '" + uuid + "', but:" + known};
}

Result<Slice> Broker::open_slice(SessionId id, const std::string& device, Bytes limit, std::string label) {
  auto session = live_session(id);
  if (!session) return session.error();
  const auto index = find_device(device);
  if (!index) return index.error();
  const DevicePolicy& found = policy_.devices[*index];
  if (limit.is_zero()) limit = std::min(ledger_.quota((*session)->tenant, *index).limit, found.pool);
  const auto rounded = limit.rounded_up(found.granularity);
  if (!rounded || *rounded > found.pool) {
    return Error{Code::kInvalidArgument, "a slice of " + to_string(limit) + " is more than the pool of " +
                                             to_string(found.pool) + " on " + device};
  }
  if (rounded->is_zero()) {
    return Error{Code::kPermissionDenied,
                 "tenant '" + tenant_name(id) + "' may have no memory of " + device + " (its limit is 0)"};
  }
  if ((*session)->slices.size() >= policy_.max_slices_per_session) {
    return Error{Code::kResourceExhausted, "the session has " + std::to_string((*session)->slices.size()) +
                                               " slices, as many as it may"};
  }
  if (auto room = check_overhead(**session, *index); !room) return room.error();
  begin_overhead(**session, *index);
  Slice slice{slice_ids_.next(), *index, *rounded, std::move(label), {}, {}};
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

void Broker::drain() {
  draining_ = true;
  for (const auto& [id, session] : sessions_) {
    for (const Request& request : arbiter_.remove_all_of(id)) {
      answer(request.id, {Code::kUnavailable, "the broker is stopping; what is mapped stays usable"});
    }
  }
}

}  // namespace gpumem::core
