#include "daemon/core/lending/leases.h"

#include <algorithm>
#include <boost/container/small_vector.hpp>

#include "daemon/core/words/refusals.h"

// Slices, and the states of leases. leases_sharing.cc has what several sessions use, leases_restart.cc the
// restart.

namespace gpumem::core {

Leases::Leases(State& state, Handles& handles, Regions& regions)
    : state_(state), handles_(handles), regions_(regions) {
  const auto& devices = state_.policy.devices;
  unanswered_.resize(devices.size());
  for (DeviceIndex i = 0; i < devices.size(); ++i) {
    stores_.emplace_back(i, devices[i].pool, devices[i].granularity, extent_ids_, job_ids_,
                         state_.policy.max_extents / devices.size());
    stores_[i].keep_free(kept_for_contexts(devices[i], {}), kept_for_others(devices[i]));
    state_.ledger.set_missing(i, stores_[i].missing());
  }
}

// ---- Slices ----

Result<Bytes> Leases::check_slice(const Session& session, DeviceIndex index, Bytes limit) const {
  const DevicePolicy& device = state_.policy.devices[index];
  // A slice without a limit of its own has as much room as the device: its tenant's limit may change.
  const bool may_have_some = !state_.ledger.quota(session.tenant, index).limit.is_zero();
  const auto rounded = (limit.is_zero() ? device.pool : limit).rounded_up(device.granularity);
  if (!rounded || *rounded > device.pool) {
    return Error{Code::kInvalidArgument, "a slice of " + to_string(limit) + " is more than the pool of " +
                                             to_string(device.pool) + " on " + name_of(state_.policy, index)};
  }
  if (limit.is_zero() && !may_have_some) {
    return Error{Code::kPermissionDenied, "tenant '" + session.tenant_name + "' may have no memory of " +
                                              name_of(state_.policy, index) + " (its limit is 0)"};
  }
  if (session.slices.size() >= state_.policy.max_slices_per_session) {
    return refusal(Bound::kSlices,
                   "the session has " + std::to_string(session.slices.size()) + " slices, as many as it may");
  }
  return *rounded;
}

Slice Leases::open_slice(Session& session, DeviceIndex device, Bytes limit, const OpenSlice& request) {
  Slice slice{slice_ids_.next(), device, limit, {}, {}, request.label, 0, request.is_private};
  session.slices.emplace(slice.id, slice);
  state_.outbox.record(checkpoint_of(slice, session.id));
  return slice;
}

Result<void> Leases::close_slice(Session& session, SliceId id) {
  const auto slice = session.slices.find(id);
  if (slice == session.slices.end()) return Error{Code::kNotFound, "the session has no such slice"};
  if (!slice->second.held.is_zero() || !state_.arbiter.waiting_bytes(id).is_zero()) {
    return Error{Code::kFailedPrecondition,
                 "the slice still holds or awaits memory; return its leases first"};
  }
  // Leases on their way back outlive the slice: they are charged to the session's tenant.
  session.slices.erase(slice);
  state_.outbox.record(Checkpoint::SliceGone{id});
  return {};
}

// ---- Offered, accepted, given back ----

Grant Leases::offer(const Assembly& assembly) {
  const Request& request = assembly.granted.request;
  Grant grant{grant_ids_.next(), {}};
  std::vector<LeaseId>& ids = offered_[grant.id];
  const Session& session = state_.session(request.session);
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const SliceId slice = request.parts[i].slice;
    const DeviceIndex device = request.parts[i].device;
    for (const Extent& extent : *assembly.extents[i]) {
      const LeaseId id = lease_ids_.next();
      Lease& made =
          put(std::unique_ptr<Lease>(new Lease{id, grant.id, extent, request.session, slice, device}));
      state_.outbox.record(checkpoint_of(made));
      ids.push_back(id);
      grant.leases.push_back({id, extent, slice, device, session.slices.at(slice).is_private});
    }
  }
  return grant;
}

Lease& Leases::put(std::unique_ptr<Lease> made) {
  Lease& lease = *made;
  Session& session = state_.session(lease.session);
  session.leases.push_back(lease);
  session.holdings[lease.device].count_extent(lease, 1);
  leases_.emplace(lease.id, std::move(made));
  return lease;
}

Result<void> Leases::accept(SessionId session, GrantId grant) {
  const auto offered = offered_.find(grant);
  if (offered == offered_.end() || lease(offered->second.front()).session != session) {
    return Error{Code::kNotFound, "no such grant is offered to the session"};
  }
  for (const LeaseId id : offered->second) set_state(lease(id), Charge::kActive);
  offered_.erase(offered);
  return {};
}

void Leases::abandon(GrantId grant, TimePoint now) {
  const auto offered = offered_.find(grant);
  if (offered == offered_.end()) return;
  for (const LeaseId id : std::vector(offered->second)) let_go(lease(id), now);
}

Result<Bytes> Leases::check_returned(const Session& session, SliceId slice,
                                     std::span<const LeaseId> ids) const {
  // More than there are cannot all be its own; to look for the first that is not would take time by their
  // number.
  if (ids.size() > leases_.size())
    return Error{Code::kNotFound, std::to_string(ids.size()) + " leases are not on loan to this slice"};
  boost::container::small_vector<LeaseId, 8> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  LeaseId before;
  Bytes returned;
  for (const LeaseId id : sorted) {
    const Lease* one = find(id);
    const bool its_own = one != nullptr && one->session == session.id && slice && one->slice == slice &&
                         one->state <= Charge::kActive;
    if (!its_own || id == std::exchange(before, id)) {
      return Error{Code::kNotFound, "lease " + std::to_string(id.value) + " is not on loan to this slice"};
    }
    returned += one->extent.size;
  }
  return returned;
}

Result<void> Leases::give_back(Session& session, SliceId slice, std::span<const LeaseId> ids, TimePoint now) {
  const auto returned = check_returned(session, slice, ids);
  if (!returned) return returned.error();
  if (ids.empty()) return {};
  Event& event = state_.note(Event::Kind::kReturned, session, now);  // until the next one is noted
  event.device = lease(ids.front()).device;
  event.bytes = *returned;
  for (const LeaseId id : ids) let_go(lease(id), now);
  return {};
}

void Leases::end(Session& session, bool may_be_in_use, TimePoint now) {
  handles_.drop_all_of(session.id);
  if (session.exited) {
    for (const LeaseId known : state_.imports.known(session.id)) prove_anew(lease(known), now);
  }
  if (!may_be_in_use) {
    const auto imports = state_.imports.of(session.id);
    const bool was_known = state_.imports.knows(session.id);
    state_.imports.release_all(session.id, session.exited);
    for (const auto& [id, leases] : imports) {
      state_.outbox.record(Checkpoint::ImportGone{id});
      for (const LeaseId lease : leases) regions_.note_change(lease);
      if (!session.exited) note_suspect(session.id, leases);
    }
    if (session.exited && was_known) state_.outbox.record(Checkpoint::Suspect{session.id, {}});
  }
  for (auto next = session.leases.begin(); next != session.leases.end();) {
    Lease& lease = *next++;  // the lease may pass to another session
    if (lease.in_store) {    // what was given back before is being freed all the same
      if (session.exited) prove_anew(lease, now);
    } else if (may_be_in_use) {
      set_state(lease, Charge::kQuarantined);
    } else {
      let_go(lease, now);
    }
  }
}

// ---- States ----

void Leases::set_state(Lease& lease, Charge state) {
  if (lease.state == state) return;
  Session& session = state_.session(lease.session);
  const Bytes size = lease.extent.size;
  state_.ledger.move(session.leaf, lease.device, size, lease.state, state);
  Holding& holding = session.holdings[lease.device];
  const bool was_held = lease.state <= Charge::kActive;
  holding.remove(lease);
  lease.state = state;
  holding.add(lease);
  state_.outbox.touch(session.id);
  if (!was_held || state <= Charge::kActive) return;
  if (!lease.slice) holding.inherited -= size;
  if (Slice* slice = session.slice(lease.slice)) slice->held -= size;
  if (const auto offer = offered_.find(lease.grant); offer != offered_.end()) {
    std::erase(offer->second, lease.id);
    if (offer->second.empty()) offered_.erase(offer);
  }
}

// Memory with a fabric handle may be mapped anywhere: its return is not expected before it is proved free.
void Leases::take_back(Lease& lease, SessionId only_user) {
  lease.in_store = true;
  state_.outbox.record(checkpoint_of(lease));
  set_state(lease, lease.fabric ? Charge::kQuarantined : Charge::kReturning);
  stores_[lease.device].take_back(lease.id, lease.extent, is_promised(lease), only_user);
}

// Whether a guarantee lacks memory once what is on its way back is free.
bool Leases::is_promised(const Lease& lease) const {
  const Ledger& ledger = state_.ledger;
  for (TenantId tenant = state_.session(lease.session).leaf; tenant; tenant = ledger.parent(tenant)) {
    const Bytes returning = ledger.charges(tenant, lease.device)[Charge::kReturning];
    if (ledger.used(tenant, lease.device).minus(returning) < ledger.quota(tenant, lease.device).guarantee)
      return true;
  }
  return false;
}

void Leases::freed(LeaseId id, TimePoint now, std::vector<SessionId>& freed_of) {
  const auto found = leases_.find(id);
  state_.outbox.record(Checkpoint::LeaseGone{id});
  const std::unique_ptr<Lease> taken = std::move(found->second);
  leases_.erase(found);
  const Lease& lease = *taken;
  const Bytes size = lease.extent.size;
  Session& session = state_.session(lease.session);
  count_unanswered(*taken, {});
  state_.ledger.release(session.leaf, lease.device, size, lease.state);
  Holding& holding = session.holdings[lease.device];
  holding.remove(lease);
  holding.count_extent(lease, -1);
  holding.freed += size;
  state_.outbox.touch(session.id);
  // A closed slice may still have leases on their way back.
  if (Slice* slice = session.slice(lease.slice)) slice->charged -= size;
  if (CommandJob* job = state_.find_job(session.job)) job->devices[lease.device].idle_since = now;
  state_.note_bytes(Event::Kind::kFreed, session, lease.device, size, now);
  freed_of.push_back(session.id);
  for (const SessionId user : state_.imports.forget(id)) freed_of.push_back(user);
}

SessionId Leases::unproved(LeaseId id, TimePoint now) {
  if (!leases_.contains(id)) return {};
  Lease& lease = this->lease(id);
  Session& session = state_.session(lease.session);
  if (!std::exchange(lease.unproved, true) && !lease.fabric)
    session.holdings[lease.device].unproved += lease.extent.size;
  state_.imports.set_unproved(id, true);
  set_state(lease, Charge::kQuarantined);
  state_.note_bytes(Event::Kind::kQuarantined, session, lease.device, lease.extent.size, now);
  if (session.exited || session.detached) {  // a session that ever used it answers for it
    if (Session* successor = successor_of(lease))
      pass(lease, *successor);
    else if (!lease.fabric)
      count_unanswered(lease, state_.tenants.owner_of(session.leaf));
  }
  return session.id;
}

// `tenant`  none: somebody answers for it, or it is free.
void Leases::count_unanswered(Lease& lease, TenantId tenant) {
  const TenantId before = std::exchange(lease.unanswered, tenant);
  if (before == tenant) return;
  auto& all = unanswered_[lease.device];
  if (before && (all[before] -= lease.extent.size).is_zero()) all.erase(before);
  if (tenant) all[tenant] += lease.extent.size;
  for (const TenantId one : {before, tenant})
    if (one) tell_unanswered(one, lease.device);
}

void Leases::follow(Session& session) {
  for (Lease& lease : session.leases)
    if (lease.unanswered) count_unanswered(lease, session.tenant);
}

// Proofs fail for memory that others have taken, too, without any fault of the tenant.
void Leases::tell_unanswered(TenantId tenant, DeviceIndex device) {
  if (!state_.tenants.contains(tenant)) return;
  const auto found = unanswered_[device].find(tenant);
  const Bytes bytes = found == unanswered_[device].end() ? Bytes{} : found->second;
  state_.ledger.set_unanswered(tenant, device, bytes > state_.hinders_proofs[device] ? bytes : Bytes{});
}

void Leases::observed(DeviceIndex device) {
  for (const auto& [tenant, bytes] : unanswered_[device]) tell_unanswered(tenant, device);
}

// The process that has ended may have kept the memory in use. No other session answers for the memory until
// the driver was asked again.
void Leases::prove_anew(Lease& lease, TimePoint now) {
  if (!lease.in_store) return;
  if (std::exchange(lease.unproved, false)) {
    if (!lease.fabric) {
      state_.session(lease.session).holdings[lease.device].unproved -= lease.extent.size;
      set_state(lease, Charge::kReturning);
    }
    state_.imports.set_unproved(lease.id, false);
  }
  stores_[lease.device].retry_now(lease.id, now);
}

std::optional<TimePoint> Leases::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Store& store : stores_) {
    if (const auto one = store.next_deadline(); one && (!next || *one < *next)) next = one;
  }
  return next;
}

bool Leases::settled() const {
  return std::ranges::all_of(stores_, [](const Store& store) { return store.settled(); });
}

}  // namespace gpumem::core
