#include <algorithm>

#include "base/check.h"
#include "daemon/core/broker.h"

// The way of memory: asked for, granted, assembled, offered, accepted, given back, proved free.

namespace gpumem::core {

void Broker::grow(RequestId id, SessionId session_id, SliceId slice_id, Bytes bytes, Duration wait,
                  TimePoint now) {
  auto session = live_session(session_id);
  if (!session) return answer(id, session.error());
  if (draining_) return answer(id, {Code::kUnavailable, "the broker is stopping"});
  const auto found = (*session)->slices.find(slice_id);
  if (found == (*session)->slices.end())
    return answer(id, {Code::kNotFound, "the session has no such slice"});
  const Slice& slice = found->second;
  const auto rounded = bytes.rounded_up(policy_.devices[slice.device].granularity);
  if (!rounded || rounded->is_zero()) {
    return answer(id, {Code::kInvalidArgument, std::to_string(bytes.count) + " bytes cannot be asked for"});
  }
  wait = std::clamp(wait, Duration::zero(), policy_.max_wait);
  const bool returning = !ledger_.charges(slice.device)[Charge::kReturning].is_zero();
  const TimePoint deadline = now + std::max(wait, returning ? policy_.return_grace : Duration::zero());
  const Request request{id,  session_id, slice_id, (*session)->tenant, slice.device, *rounded,
                        now, wait,       deadline};
  const Quota& quota = ledger_.quota(request.tenant, request.device);
  const Bytes spoken_for = slice.held + arbiter_.waiting_bytes(slice_id);
  const Bytes held = ledger_.charges(request.tenant, request.device).held();
  // The tenant's limit first: where both are passed, another slice would not help.
  if (request.bytes > quota.limit.minus(held)) return refuse(request, Denial::Reason::kTenantLimit, now);
  if (request.bytes > slice.limit.minus(spoken_for)) return refuse(request, Denial::Reason::kSliceLimit, now);
  if (request.bytes > ledger_.ceiling(request.tenant, request.device).minus(held)) {
    return refuse(request, Denial::Reason::kPoolSize, now);
  }
  if (arbiter_.waiting_of(session_id) >= policy_.max_requests_per_session) {
    return answer(
        id, {Code::kResourceExhausted, "the session has " + std::to_string(policy_.max_requests_per_session) +
                                           " requests waiting, as many as it may"});
  }
  arbiter_.add(request);
  settle(now);
  if (deadline > now) return;
  if (auto waiting = arbiter_.remove(id)) refuse(*waiting, obstacle(*waiting), now);
}

void Broker::cancel(RequestId id, TimePoint now) {
  arbiter_.remove(id);
  if (auto granted = granted_.extract(id); !granted.empty()) {
    stores_[granted.mapped().device].withdraw(id);
    undo(granted.mapped());
  }
  settle(now);
}

void Broker::abandon(GrantId grant, TimePoint now) {
  const auto offered = offered_.find(grant);
  if (offered == offered_.end()) return;
  for (const LeaseId lease : std::vector(offered->second)) take_back(leases_.at(lease));
  settle(now);
}

// A granted request that comes to nothing: its bytes are nobody's charge again.
void Broker::undo(const Request& request) {
  ledger_.release(request.tenant, request.device, request.bytes, Charge::kOffered);
  Slice& slice = sessions_.at(request.session).slices.at(request.slice);
  slice.charged -= request.bytes;
  slice.held -= request.bytes;
  touch(request.session);
}

Result<void> Broker::accept(SessionId session, GrantId grant) {
  const auto offered = offered_.find(grant);
  if (offered == offered_.end() || leases_.at(offered->second.front()).session != session) {
    return Error{Code::kNotFound, "no such grant is offered to the session"};
  }
  for (const LeaseId lease : offered->second) set_state(leases_.at(lease), Charge::kActive);
  offered_.erase(offered);
  return {};
}

Result<void> Broker::give_back(SessionId session_id, SliceId slice, std::span<const LeaseId> ids,
                               TimePoint now) {
  if (auto session = live_session(session_id); !session) return session.error();
  std::unordered_set<LeaseId> seen;
  for (const LeaseId id : ids) {
    const auto found = leases_.find(id);
    const bool its_own = found != leases_.end() && found->second.session == session_id &&
                         found->second.slice == slice && found->second.state <= Charge::kActive;
    if (!its_own || !seen.insert(id).second) {
      return Error{Code::kNotFound, "lease " + std::to_string(id.value) + " is not on loan to this slice"};
    }
  }
  for (const LeaseId id : ids) take_back(leases_.at(id));
  settle(now);
  return {};
}

void Broker::job_done(const JobResult& result, TimePoint now) {
  stores_[result.device].finish(result, now);
  settle(now);
}

void Broker::tick(TimePoint now) {
  for (const Request& request : arbiter_.remove_expired(now)) refuse(request, obstacle(request), now);
  settle(now);
}

std::optional<TimePoint> Broker::next_deadline() const {
  auto next = arbiter_.next_deadline();
  for (const Store& store : stores_) {
    const auto retry = store.next_deadline();
    if (retry && (!next || *retry < *next)) next = retry;
  }
  return next;
}

void Broker::settle(TimePoint now) {
  // What is freed on one device can be the end of a tenant, and so of its guarantees on the others.
  for (bool changed = true; changed;) {
    changed = false;
    for (DeviceIndex device = 0; device < stores_.size(); ++device) changed |= settle_device(device, now);
  }
}

// One round of grants and of physical progress; true if something changed that may allow more.
bool Broker::settle_device(DeviceIndex device, TimePoint now) {
  Store& store = stores_[device];
  for (const Request& request : arbiter_.admit(device)) {
    Slice& slice = sessions_.at(request.session).slices.at(request.slice);
    slice.charged += request.bytes;
    slice.held += request.bytes;
    touch(request.session);
    granted_.emplace(request.id, request);
    store.want(request.id, request.bytes);
  }
  Store::Progress progress = store.advance(now);
  const bool found = store.missing() < ledger_.missing(device);
  ledger_.set_missing(device, store.missing());
  for (const auto& assembly : progress.assembled) deliver(assembly);
  for (const RequestId id : progress.unobtainable) {
    undo(granted_.extract(id).mapped());
    answer(id, {Code::kUnavailable, "the driver does not give the memory: a process past the broker took " +
                                        to_string(store.missing()) + " of its pool; see `gpumem status`"});
  }
  for (const LeaseId id : progress.quarantined) {
    if (const auto lease = leases_.find(id); lease != leases_.end())
      set_state(lease->second, Charge::kQuarantined);
  }
  for (const LeaseId id : progress.freed) freed(id);
  for (Job& job : progress.jobs) effects_.emplace_back(RunJob{std::move(job)});
  return found || !progress.freed.empty() || !progress.unobtainable.empty();
}

void Broker::deliver(const Store::Progress::Assembly& assembly) {
  const Request request = granted_.extract(assembly.request).mapped();
  Session& session = sessions_.at(request.session);
  Grant grant{grant_ids_.next(), request.device, {}};
  std::vector<LeaseId>& ids = offered_[grant.id];
  for (const Extent& extent : assembly.extents) {
    const LeaseId id = lease_ids_.next();
    leases_.emplace(id, Lease{id, grant.id, extent, request.session, request.slice, request.tenant,
                              request.device, Charge::kOffered});
    session.leases.insert(id);
    ids.push_back(id);
    grant.leases.push_back({id, extent});
  }
  effects_.emplace_back(SendOffer{request.session, request.slice, grant});
  effects_.emplace_back(AnswerGrow{request.id, std::move(grant)});
}

void Broker::set_state(Lease& lease, Charge state) {
  if (lease.state == state) return;
  ledger_.move(lease.tenant, lease.device, lease.extent.size, lease.state, state);
  const bool was_held = lease.state <= Charge::kActive;
  lease.state = state;
  touch(lease.session);
  if (!was_held || state <= Charge::kActive) return;
  Session& session = sessions_.at(lease.session);
  if (const auto slice = session.slices.find(lease.slice); slice != session.slices.end()) {
    slice->second.held -= lease.extent.size;
  }
  if (const auto offer = offered_.find(lease.grant); offer != offered_.end()) {
    std::erase(offer->second, lease.id);
    if (offer->second.empty()) offered_.erase(offer);
  }
}

void Broker::take_back(Lease& lease) {
  if (lease.in_store) return;
  lease.in_store = true;
  set_state(lease, Charge::kReturning);
  stores_[lease.device].take_back(lease.id, lease.extent);
}

void Broker::freed(LeaseId id) {
  const Lease lease = leases_.extract(id).mapped();
  ledger_.release(lease.tenant, lease.device, lease.extent.size, lease.state);
  Session& session = sessions_.at(lease.session);
  session.leases.erase(id);
  touch(session.id);
  if (const auto slice = session.slices.find(lease.slice); slice != session.slices.end()) {
    slice->second.charged -= lease.extent.size;
  }
  forget_if_done(lease.session);
}

void Broker::refuse(const Request& request, Denial::Reason reason, TimePoint now) {
  Denial denial = denial_of(request, reason, now);
  Error error{code_of(denial), explain(denial)};
  effects_.emplace_back(AnswerGrow{request.id, GrowFailure{std::move(error), std::move(denial)}});
}

// What keeps a request waiting.
Denial::Reason Broker::obstacle(const Request& request) const {
  if (ledger_.verdict(request.tenant, request.device, request.bytes) != Ledger::Verdict::kOverLimit) {
    return Denial::Reason::kNoMemory;
  }
  const Bytes limit = ledger_.quota(request.tenant, request.device).limit;
  return ledger_.ceiling(request.tenant, request.device) < limit ? Denial::Reason::kPoolSize
                                                                 : Denial::Reason::kTenantLimit;
}

void Broker::answer(RequestId id, Error error) {
  effects_.emplace_back(AnswerGrow{id, GrowFailure{std::move(error), std::nullopt}});
}

Denial Broker::denial_of(const Request& request, Denial::Reason reason, TimePoint now) const {
  const Session& session = sessions_.at(request.session);
  const auto charged = ledger_.charges(request.tenant, request.device).total();
  Denial denial;
  denial.reason = reason;
  denial.device = policy_.devices[request.device].uuid;
  denial.tenant = tenants_.at(request.tenant).name;
  denial.asked = request.bytes;
  denial.slice_limit = session.slices.at(request.slice).limit;
  denial.quota = ledger_.quota(request.tenant, request.device);
  denial.charged = charged;
  denial.pool = ledger_.pool(request.device);
  denial.free = ledger_.free(request.device);
  denial.kept_for_others = std::min(denial.free, ledger_.kept_for_others(request.tenant, request.device));
  denial.guaranteed_to_others = ledger_.guaranteed(request.device) - denial.quota.guarantee;
  denial.charged_to_others = ledger_.charges(request.device).total() - charged;
  denial.waiters_ahead = arbiter_.waiting_before(request);
  denial.waited = now - request.asked;
  denial.wait_limit = request.wait;
  denial.holders = holders(request.tenant, request.device);
  return denial;
}

std::vector<Denial::Holder> Broker::holders(TenantId tenant, DeviceIndex device) const {
  constexpr std::size_t kMost = 16;
  std::vector<Denial::Holder> all;
  for (const auto& [id, session] : sessions_) {
    if (session.tenant != tenant) continue;
    Bytes charged;
    for (const auto& [slice_id, slice] : session.slices) {
      if (slice.device == device) charged += slice.charged;
    }
    if (!charged.is_zero()) all.push_back({id, session.peer.pid, session.peer.command, charged});
  }
  std::ranges::sort(all, [](const auto& a, const auto& b) {
    return a.charged != b.charged ? a.charged > b.charged : a.session < b.session;
  });
  if (all.size() > kMost) all.resize(kMost);
  return all;
}

}  // namespace gpumem::core
