#include <algorithm>
#include <boost/container/small_vector.hpp>

#include "base/check.h"
#include "daemon/core/lending.h"

// The way of memory back: given back, proved free, or left behind.

namespace gpumem::core {

Result<void> Lending::give_back(Session& session, SliceId slice, std::span<const LeaseId> ids,
                                TimePoint now) {
  boost::container::small_vector<LeaseId, 8> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  LeaseId before;
  for (const LeaseId id : sorted) {
    const auto found = leases_.find(id);
    const bool its_own = found != leases_.end() && found->second->session == session.id && slice &&
                         found->second->slice == slice && found->second->state <= Charge::kActive;
    if (!its_own || id == std::exchange(before, id)) {
      return Error{Code::kNotFound, "lease " + std::to_string(id.value) + " is not on loan to this slice"};
    }
  }
  if (ids.empty()) return {};
  Bytes returned;
  for (const LeaseId id : ids) returned += lease(id).extent.size;
  Event& event = state_.note(Event::Kind::kReturned, session, now);  // until the next one is noted
  event.device = lease(ids.front()).device;
  event.bytes = returned;
  for (const LeaseId id : ids) let_go(lease(id), now);
  return {};
}

void Lending::abandon(GrantId grant, TimePoint now) {
  const auto offered = offered_.find(grant);
  if (offered == offered_.end()) return;
  for (const LeaseId id : std::vector(offered->second)) let_go(lease(id), now);
}

void Lending::end(Session& session, bool may_be_in_use, TimePoint now) {
  for (const Request& request : state_.arbiter.remove_all_of(session.id)) places_.forget(request);
  for (const RequestId id : std::vector(session.assemblies.begin(), session.assemblies.end()))
    undo(assemblies_.extract(id).mapped());
  places_.release_all_of(session.id);
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
      for (const LeaseId lease : leases) note_use(lease);
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

// A process that may be why the driver did not prove it free is gone: nobody else answers for it before the
// driver was asked again.
void Lending::prove_anew(Lease& lease, TimePoint now) {
  if (!lease.in_store) return;
  if (std::exchange(lease.unproved, false)) {
    if (!lease.fabric) {
      state_.session(lease.session).holdings[lease.device].unproved -= lease.extent.size;
      set_state(lease, Charge::kReturning);
    }
    state_.imports.set_unproved(lease.id, false);
  }
  stores_[lease.device].retry_now(now);
}

void Lending::move(const std::map<SessionId, TenantId>& owners, TimePoint now) {
  const std::vector<Region> lost = move_regions(owners, now);
  for (const auto& [id, owner] : owners) move(state_.session(id), owner);
  for (const Region& region : lost) let_go_unkept(region, now);
}

void Lending::move(Session& session, TenantId to) {
  for (DeviceIndex device = 0; device < stores_.size(); ++device) {
    const auto found = session.outside.find(device);
    const OutsideCharge outside = found == session.outside.end() ? OutsideCharge{} : found->second;
    state_.ledger.transfer(session.tenant, to, device, session.holding(device).charges, outside.total());
    state_.charge_unasked(session.tenant, device, outside.unasked(), {});
    state_.charge_unasked(to, device, {}, outside.unasked());
  }
  for (const RequestId id : session.assemblies) assemblies_.at(id).granted.request.tenant = to;
  state_.arbiter.set_tenant(session.id, to);
  state_.tenants.leave(session.tenant, session.id);
  session.tenant = to;
  session.tenant_name = state_.tenants.name(to);
  state_.outbox.record(checkpoint_of(session));
  state_.tenants.join(to, session.id);
  state_.outbox.touch(session.id);
}

void Lending::job_done(const JobResult& result, TimePoint now) { stores_[result.device].finish(result, now); }

// One round of physical progress; true if something changed that may allow more grants.
bool Lending::advance(DeviceIndex device, TimePoint now, std::vector<SessionId>& freed_of) {
  Store& store = stores_[device];
  Store::Progress progress = store.advance(now);
  const bool found = store.missing() < state_.ledger.missing(device);
  state_.ledger.set_missing(device, store.missing());
  for (auto& one : progress.assembled) assembled(device, std::move(one));
  for (const RequestId id : progress.unobtainable) unobtainable(device, id);
  for (const LeaseId id : progress.quarantined) freed_of.push_back(unproved(id, now));
  for (const LeaseId id : progress.freed) freed(id, now, freed_of);
  if (!progress.jobs.empty()) state_.outbox.emit(RunJobs{device, std::move(progress.jobs)});
  for (const JobId job : progress.hurried) state_.outbox.emit(HurryJob{device, job});
  return found || !progress.freed.empty() || !progress.unobtainable.empty();
}

// Answers whose it was.
SessionId Lending::unproved(LeaseId id, TimePoint now) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return {};
  Lease& lease = *found->second;
  Session& session = state_.session(lease.session);
  if (!std::exchange(lease.unproved, true) && !lease.fabric)
    session.holdings[lease.device].unproved += lease.extent.size;
  state_.imports.set_unproved(id, true);
  set_state(lease, Charge::kQuarantined);
  state_.note_bytes(Event::Kind::kQuarantined, session, lease.device, lease.extent.size, now);
  pass_unproved(lease);
  return session.id;
}

void Lending::set_state(Lease& lease, Charge state) {
  if (lease.state == state) return;
  Session& session = state_.session(lease.session);
  const Bytes size = lease.extent.size;
  state_.ledger.move(session.tenant, lease.device, size, lease.state, state);
  Charges& charges = session.holdings[lease.device].charges;
  charges[lease.state] -= size;
  charges[state] += size;
  if (lease.fabric) {
    session.holdings[lease.device].fabric[lease.state] -= size;
    session.holdings[lease.device].fabric[state] += size;
  }
  const bool was_held = lease.state <= Charge::kActive;
  lease.state = state;
  state_.outbox.touch(session.id);
  if (!was_held || state <= Charge::kActive) return;
  if (!lease.slice) session.holdings[lease.device].inherited -= size;
  if (Slice* slice = slice_of(session, lease.slice)) slice->held -= size;
  if (const auto offer = offered_.find(lease.grant); offer != offered_.end()) {
    std::erase(offer->second, lease.id);
    if (offer->second.empty()) offered_.erase(offer);
  }
}

// Memory that a fabric handle stands for may be mapped anywhere: nobody may count on it before it is proved
// free.
void Lending::take_back(Lease& lease) {
  if (lease.in_store) return;
  lease.in_store = true;
  state_.outbox.record(checkpoint_of(lease));
  set_state(lease, lease.fabric ? Charge::kQuarantined : Charge::kReturning);
  stores_[lease.device].take_back(lease.id, lease.extent);
}

void Lending::freed(LeaseId id, TimePoint now, std::vector<SessionId>& freed_of) {
  const auto found = leases_.find(id);
  state_.outbox.record(Checkpoint::LeaseGone{id});
  const std::unique_ptr<Lease> taken = std::move(found->second);
  leases_.erase(found);
  const Lease& lease = *taken;
  const Bytes size = lease.extent.size;
  Session& session = state_.session(lease.session);
  state_.ledger.release(session.tenant, lease.device, size, lease.state);
  Holding& holding = session.holdings[lease.device];
  holding.charges[lease.state] -= size;
  if (lease.fabric)
    holding.fabric[lease.state] -= size;
  else if (lease.unproved)
    holding.unproved -= size;
  holding.freed += size;
  state_.outbox.touch(session.id);
  // Nothing, once the slice is closed: its last leases may be on their way back still.
  if (Slice* slice = slice_of(session, lease.slice)) slice->charged -= size;
  state_.note_bytes(Event::Kind::kFreed, session, lease.device, size, now);
  freed_of.push_back(session.id);
  for (const SessionId user : state_.imports.forget(id)) freed_of.push_back(user);
}

std::optional<TimePoint> Lending::next_deadline() const {
  std::optional<TimePoint> next = regions_.next_expiry();
  for (const Store& store : stores_) {
    if (const auto one = store.next_deadline(); one && (!next || *one < *next)) next = one;
  }
  return next;
}

bool Lending::settled() const {
  return std::ranges::all_of(stores_, [](const Store& store) { return store.settled(); });
}

}  // namespace gpumem::core
