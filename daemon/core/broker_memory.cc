#include <algorithm>

#include "base/check.h"
#include "daemon/core/broker.h"

// The way of memory: asked for, granted, assembled, offered, accepted, given back, proved free.

namespace gpumem::core {

// ---- Asked for ----

void Broker::grow(RequestId id, SessionId session_id, std::span<const Part> asked, Duration wait,
                  TimePoint now) {
  auto session = live_session(session_id);
  if (!session) return answer(id, session.error());
  if (draining_) return answer(id, {Code::kUnavailable, "the broker is stopping"});
  auto parts = parts_of(**session, asked);
  if (!parts) return answer(id, parts.error().error);
  wait = std::clamp(wait, Duration::zero(), policy_.max_wait);
  Request request{id, session_id, (*session)->tenant, std::move(*parts), now, wait, now + wait};
  if (const auto refusal = hopeless(request)) return refuse(request, *refusal, now);
  if (arbiter_.waiting_of(session_id) >= policy_.max_requests_per_session) {
    return answer(
        id, {Code::kResourceExhausted, "the session has " + std::to_string(policy_.max_requests_per_session) +
                                           " requests waiting, as many as it may"});
  }
  for (Request::Part& part : request.parts) {
    const Slice& slice = (*session)->slices.at(part.slice);
    part.wanted = std::min(part.wanted, slice.limit.minus(slice.held + arbiter_.waiting_bytes(part.slice)));
  }
  request.deadline = deadline_of(request, now);
  const bool may_wait = request.deadline > now;
  arbiter_.add(std::move(request));
  progress(now);
  const Request* waiting = arbiter_.find(id);
  if (waiting != nullptr && may_wait) {
    Event& event = note(Event::Kind::kWaiting, **session, now);
    event.request = id;
    event.device = waiting->parts.front().device;
    event.bytes = waiting->parts.front().wanted;
    event.deadline = waiting->deadline;
  } else if (waiting != nullptr) {  // nobody is asked for what nobody waits for
    const Request refused = *arbiter_.remove(id);
    refuse(refused, obstacle(refused), now);
  }
  settle(now);
}

Result<std::vector<Request::Part>, GrowFailure> Broker::parts_of(const Session& session,
                                                                 std::span<const Part> asked) const {
  const auto fail = [](Code code, std::string words) {
    return GrowFailure{{code, std::move(words)}, std::nullopt};
  };
  if (asked.empty()) return fail(Code::kInvalidArgument, "a growth of nothing cannot be asked for");
  std::vector<Request::Part> parts;
  for (const Part& one : asked) {
    const auto found = session.slices.find(one.slice);
    if (found == session.slices.end()) return fail(Code::kNotFound, "the session has no such slice");
    const DeviceIndex device = found->second.device;
    if (std::ranges::count(parts, device, &Request::Part::device) != 0) {
      return fail(Code::kInvalidArgument, "two parts of one growth are of the same device, " +
                                              policy_.devices[device].uuid +
                                              "; ask for them one after the other");
    }
    const Bytes granularity = policy_.devices[device].granularity;
    const auto wanted = one.wanted.rounded_up(granularity);
    const auto least = (one.least.is_zero() ? one.wanted : one.least).rounded_up(granularity);
    if (!wanted || !least || least->is_zero()) {
      return fail(Code::kInvalidArgument, std::to_string(one.wanted.count) + " bytes cannot be asked for");
    }
    if (*least > *wanted) {
      return fail(Code::kInvalidArgument,
                  "at least " + to_string(*least) + " of " + to_string(*wanted) + " cannot be asked for");
    }
    parts.push_back({one.slice, device, *wanted, *least, one.largest});
  }
  return parts;
}

// What no waiting can help: granted to a tenant that had nothing else, and with everybody else at what they
// are promised, it would still pass a limit.
std::optional<Broker::Refusal> Broker::hopeless(const Request& request) const {
  const Session& session = sessions_.at(request.session);
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    for (TenantId tenant = request.tenant; tenant; tenant = ledger_.parent(tenant)) {
      if (part.least > ledger_.quota(tenant, part.device).limit)
        return Refusal{i, Denial::Reason::kTenantLimit};
    }
    const Slice& slice = session.slices.at(part.slice);
    const Bytes spoken_for = slice.held + arbiter_.waiting_bytes(part.slice);
    if (part.least > slice.limit.minus(spoken_for)) {
      // The tenant's limit first: where both are passed, another slice would not help.
      const TenantId limiting = ledger_.limiting(request.tenant, part.device, part.least);
      return Refusal{i, limiting ? limit_reason(limiting, part.device) : Denial::Reason::kSliceLimit};
    }
    if (part.least > ledger_.ceiling(request.tenant, part.device))
      return Refusal{i, Denial::Reason::kPoolSize};
  }
  return std::nullopt;
}

// Even a request that may not wait is given the time that memory on its way back needs, and, for what it is
// promised but is lent to others, the time that they have to give it back.
TimePoint Broker::deadline_of(const Request& request, TimePoint now) const {
  Duration patience = request.wait;
  for (const Request::Part& part : request.parts) {
    if (!ledger_.charges(part.device)[Charge::kReturning].is_zero())
      patience = std::max(patience, policy_.return_grace);
    const ReclaimPolicy& reclaim = policy_.devices[part.device].reclaim;
    if (reclaim.lend_guarantees && part.least <= ledger_.claimable(request.tenant, part.device))
      patience = std::max(patience, reclaim.deadline + policy_.return_grace);
  }
  return now + patience;
}

void Broker::cancel(RequestId id, TimePoint now) {
  if (const auto removed = arbiter_.remove(id)) {
    note(Event::Kind::kWithdrawn, sessions_.at(removed->session), now).request = id;
  }
  if (auto assembly = assemblies_.extract(id); !assembly.empty()) undo(assembly.mapped());
  settle(now);
}

void Broker::abandon(GrantId grant, TimePoint now) {
  const auto offered = offered_.find(grant);
  if (offered == offered_.end()) return;
  for (const LeaseId lease : std::vector(offered->second)) take_back(leases_.at(lease));
  settle(now);
}

void Broker::refuse(const Request& request, Refusal refusal, TimePoint now) {
  Denial denial = denial_of(request, refusal, now);
  Error error{code_of(denial), explain(denial)};
  Event& event = note(Event::Kind::kDenied, sessions_.at(request.session), now);
  event.request = request.id;
  event.device = request.parts[refusal.part].device;
  event.bytes = request.parts[refusal.part].least;
  event.waited = now - request.asked;
  event.words = error.message;
  effects_.emplace_back(AnswerGrow{request.id, GrowFailure{std::move(error), std::move(denial)}});
}

void Broker::answer(RequestId id, Error error) {
  effects_.emplace_back(AnswerGrow{id, GrowFailure{std::move(error), std::nullopt}});
}

// ---- Granted, assembled, offered, accepted ----

void Broker::settle(TimePoint now) {
  // What is refused makes room for others.
  do progress(now);
  while (press(now));
}

void Broker::progress(TimePoint now) {
  // What is freed on one device can be the end of a tenant, and so of its guarantees on the others.
  for (bool changed = true; changed;) {
    changed = false;
    for (Granted& granted : arbiter_.admit()) begin(std::move(granted), now);
    for (DeviceIndex device = 0; device < stores_.size(); ++device) changed |= advance(device, now);
  }
}

void Broker::begin(Granted granted, TimePoint now) {
  const Request& request = granted.request;
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    Slice& slice = *slice_of(request.session, part.slice);
    slice.charged += granted.bytes[i];
    slice.held += granted.bytes[i];
    stores_[part.device].want(request.id, granted.bytes[i], part.largest);
    Event& event = note(Event::Kind::kGranted, sessions_.at(request.session), now);
    event.request = request.id;
    event.device = part.device;
    event.bytes = granted.bytes[i];
    event.waited = now - request.asked;
  }
  touch(request.session);
  const RequestId id = request.id;
  const std::size_t parts = request.parts.size();
  assemblies_.emplace(id,
                      Assembly{std::move(granted), std::vector<std::optional<std::vector<Extent>>>(parts)});
}

// One round of physical progress; true if something changed that may allow more grants.
bool Broker::advance(DeviceIndex device, TimePoint now) {
  Store& store = stores_[device];
  Store::Progress progress = store.advance(now);
  const bool found = store.missing() < ledger_.missing(device);
  ledger_.set_missing(device, store.missing());
  for (auto& one : progress.assembled) assembled(device, std::move(one));
  for (const RequestId id : progress.unobtainable) unobtainable(device, id);
  for (const LeaseId id : progress.quarantined) {
    if (const auto lease = leases_.find(id); lease != leases_.end()) {
      set_state(lease->second, Charge::kQuarantined);
      note_extent(Event::Kind::kQuarantined, lease->second, now);
    }
  }
  for (const LeaseId id : progress.freed) freed(id, now);
  for (Job& job : progress.jobs) effects_.emplace_back(RunJob{std::move(job)});
  return found || !progress.freed.empty() || !progress.unobtainable.empty();
}

void Broker::assembled(DeviceIndex device, Store::Progress::Assembly&& one) {
  const auto found = assemblies_.find(one.request);
  const auto& parts = found->second.granted.request.parts;
  const auto part = std::ranges::find(parts, device, &Request::Part::device) - parts.begin();
  found->second.extents[static_cast<std::size_t>(part)] = std::move(one.extents);
  if (found->second.complete()) deliver(std::move(assemblies_.extract(found).mapped()));
}

void Broker::unobtainable(DeviceIndex device, RequestId id) {
  auto assembly = assemblies_.extract(id);
  if (assembly.empty()) return;  // undone already, for another of its parts
  undo(assembly.mapped());
  answer(id, {Code::kUnavailable, "the driver does not give the memory: a process past the broker took " +
                                      to_string(stores_[device].missing()) +
                                      " of its pool; see `gpumem reconcile`"});
}

// A granted request that comes to nothing: its bytes are nobody's charge again.
void Broker::undo(const Assembly& assembly) {
  const Request& request = assembly.granted.request;
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    const Bytes bytes = assembly.granted.bytes[i];
    if (assembly.extents[i])
      stores_[part.device].put_back(*assembly.extents[i]);
    else
      stores_[part.device].withdraw(request.id);
    ledger_.release(request.tenant, part.device, bytes, Charge::kOffered);
    Slice& slice = *slice_of(request.session, part.slice);
    slice.charged -= bytes;
    slice.held -= bytes;
  }
  touch(request.session);
}

void Broker::deliver(Assembly assembly) {
  const Request& request = assembly.granted.request;
  Session& session = sessions_.at(request.session);
  Grant grant{grant_ids_.next(), {}};
  std::vector<LeaseId>& ids = offered_[grant.id];
  for (std::size_t i = 0; i < request.parts.size(); ++i) {
    const Request::Part& part = request.parts[i];
    for (const Extent& extent : *assembly.extents[i]) {
      const LeaseId id = lease_ids_.next();
      leases_.emplace(id, Lease{id, grant.id, extent, request.session, part.slice, request.tenant,
                                part.device, Charge::kOffered});
      session.leases.insert(id);
      ids.push_back(id);
      grant.leases.push_back({id, extent, part.slice, part.device});
    }
  }
  effects_.emplace_back(SendOffer{request.session, grant});
  effects_.emplace_back(AnswerGrow{request.id, std::move(grant)});
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

// ---- Given back, proved free ----

Result<void> Broker::give_back(SessionId session_id, SliceId slice, std::span<const LeaseId> ids,
                               TimePoint now) {
  auto session = live_session(session_id);
  if (!session) return session.error();
  std::unordered_set<LeaseId> seen;
  for (const LeaseId id : ids) {
    const auto found = leases_.find(id);
    const bool its_own = found != leases_.end() && found->second.session == session_id &&
                         found->second.slice == slice && found->second.state <= Charge::kActive;
    if (!its_own || !seen.insert(id).second) {
      return Error{Code::kNotFound, "lease " + std::to_string(id.value) + " is not on loan to this slice"};
    }
  }
  if (ids.empty()) return {};
  Event& event = note(Event::Kind::kReturned, **session, now);
  event.device = leases_.at(ids.front()).device;
  for (const LeaseId id : ids) {
    event.bytes += leases_.at(id).extent.size;
    take_back(leases_.at(id));
  }
  settle(now);
  return {};
}

void Broker::job_done(const JobResult& result, TimePoint now) {
  stores_[result.device].finish(result, now);
  settle(now);
}

void Broker::set_state(Lease& lease, Charge state) {
  if (lease.state == state) return;
  ledger_.move(lease.tenant, lease.device, lease.extent.size, lease.state, state);
  const bool was_held = lease.state <= Charge::kActive;
  lease.state = state;
  touch(lease.session);
  if (!was_held || state <= Charge::kActive) return;
  if (Slice* slice = slice_of(lease.session, lease.slice)) slice->held -= lease.extent.size;
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

void Broker::freed(LeaseId id, TimePoint now) {
  const Lease lease = leases_.extract(id).mapped();
  ledger_.release(lease.tenant, lease.device, lease.extent.size, lease.state);
  note_freed(lease);
  Session& session = sessions_.at(lease.session);
  session.leases.erase(id);
  touch(session.id);
  if (Slice* slice = slice_of(lease.session, lease.slice)) slice->charged -= lease.extent.size;
  note_extent(Event::Kind::kFreed, lease, now);
  forget_if_done(lease.session);
}

// Nothing, once the slice is closed: its last leases may be on their way back still.
Slice* Broker::slice_of(SessionId session, SliceId slice) {
  auto& slices = sessions_.at(session).slices;
  const auto found = slices.find(slice);
  return found == slices.end() ? nullptr : &found->second;
}

// ---- Time ----

void Broker::tick(TimePoint now) {
  arbiter_.age(now);
  for (const Request& request : arbiter_.remove_expired(now)) refuse(request, obstacle(request), now);
  carry_out_sentences(now);
  end_overdue(now);
  settle(now);
}

std::optional<TimePoint> Broker::next_deadline() const {
  std::optional<TimePoint> next;
  const auto consider = [&](std::optional<TimePoint> one) {
    if (one && (!next || *one < *next)) next = one;
  };
  consider(arbiter_.next_deadline());
  consider(pressure_deadline());
  consider(reconcile_deadline());
  for (const Store& store : stores_) consider(store.next_deadline());
  return next;
}

}  // namespace gpumem::core
