#include "daemon/core/lending/growths.h"

#include <algorithm>

#include "daemon/core/words/refusals.h"

namespace gpumem::core {
namespace {

// Requests refused in one piece of work. Each refusal says who has the memory: it visits the tenant's
// sessions.
constexpr std::size_t kMostRefusedInARow = 8;

}  // namespace

std::optional<RequestId> Growths::place_kept(const Session& session, std::span<const GrowthPart> asked,
                                             TimePoint now) {
  if (!places_.keeps_any()) return std::nullopt;
  const auto parts = parts_of(session, asked);
  return parts ? places_.take(session.id, *parts, now) : std::nullopt;
}

bool Growths::ask(RequestId id, Session& session, const Grow& asked, TimePoint now) {
  auto parts = parts_of(session, asked.parts);
  if (!parts) return answer(id, parts.error()), false;
  Request request = request_of(id, session, std::move(*parts), std::min(asked.wait, kLongestWait), now);
  request.tenant = session.leaf;
  request.job = session.job;
  request.is_probe = asked.is_probe;
  request.unread = asked.unread;
  return join_or_release(std::move(request), now);
}

std::optional<RequestId> Growths::place_kept(const Session& owner, const CommandJob& job,
                                             const ReserveForJob& asked, TimePoint now) {
  if (!places_.keeps_any()) return std::nullopt;
  const auto parts = parts_of(job, asked);
  return parts ? places_.take(owner.id, *parts, now) : std::nullopt;
}

bool Growths::ask_reservation(RequestId id, Session& owner, const CommandJob& job, const ReserveForJob& asked,
                              TimePoint now) {
  auto parts = parts_of(job, asked);
  if (!parts) return answer(id, parts.error()), false;
  Request request = request_of(id, owner, std::move(*parts), asked.wait, now);
  request.tenant = job.leaf;
  request.job = job.id;
  request.unread = asked.unread;
  return join_or_release(std::move(request), now);
}

Request Growths::request_of(RequestId id, const Session& session, Request::Parts parts, Duration wait,
                            TimePoint now) const {
  wait = std::clamp(wait, Duration::zero(), state_.policy.max_wait);
  const auto kind = parts.front().slice ? Request::Kind::kGrowth : Request::Kind::kReservation;
  const TimePoint since = places_.since(session.id, id).value_or(now);
  return {.id = id,
          .session = session.id,
          .tenant = {},
          .parts = std::move(parts),
          .asked = since,
          .wait = wait,
          .deadline = now + wait,
          .may_borrow = session.peer.can_be_ended,
          .account = session.peer.account(),
          .kind = kind,
          .before = now - since};
}

bool Growths::join_or_release(Request request, TimePoint now) {
  const SessionId session = request.session;
  const RequestId id = request.id;
  if (join(std::move(request), now)) return true;
  places_.release(session, id);
  return false;
}

bool Growths::join(Request request, TimePoint now) {
  const Session& session = state_.session(request.session);
  if (const auto refusal = explainer_.infeasible(request)) return refuse(request, *refusal, now), false;
  if (!request.is_context()) {  // ask_context() has checked it
    if (const auto room = check_room(request.session, request.account); !room)
      return answer(request.id, room.error()), false;
  }
  for (Request::Part& part : request.parts) {
    if (!request.is_growth()) break;
    const Slice& slice = session.slices.at(part.slice);
    const Bytes spoken_for = slice.held + state_.arbiter.waiting_bytes(part.slice);
    part.bytes = std::min(part.bytes, slice.limit.minus(spoken_for));
  }
  request.due = request.deadline = deadline_of(request, now);
  if (elastic_.can_create_for(request))
    request.deadline = std::max(request.due, now + elastic_.patience(request));
  const bool is_late = request.asked < now;  // the request waited at an earlier broker
  state_.arbiter.add(std::move(request));
  if (is_late) state_.arbiter.age(now);
  return true;
}

// Whether one more request may wait.
Result<void> Growths::check_room(SessionId session, std::uint64_t account) const {
  const Policy& policy = state_.policy;
  const Arbiter& arbiter = state_.arbiter;
  const auto full = [](const std::string& who, std::size_t most) {
    return refusal(Bound::kRequests,
                   who + " has " + std::to_string(most) + " requests waiting, as many as it may");
  };
  if (arbiter.waiting_of(session) >= policy.max_requests_per_session)
    return full("the session", policy.max_requests_per_session);
  if (arbiter.waiting_of_account(account) >= policy.max_requests_per_user())
    return full("the user", policy.max_requests_per_user());
  // So many requests of others may not keep a user from a claim.
  if (arbiter.waiting() >= policy.max_requests && arbiter.waiting_of_account(account) != 0)
    return full("the broker", policy.max_requests);
  return {};
}

Result<Request::Parts> Growths::parts_of(const Session& session, std::span<const GrowthPart> asked) const {
  if (asked.empty()) return Error{Code::kInvalidArgument, "a growth of nothing cannot be asked for"};
  Request::Parts parts;
  for (const GrowthPart& one : asked) {
    auto part = part_of(session, one);
    if (!part) return part.error();
    if (std::ranges::count(parts, part->device, &Request::Part::device) != 0) {
      return Error{Code::kInvalidArgument, "two parts of one growth are of the same device, " +
                                               name_of(state_.policy, part->device) +
                                               "; ask for them one after the other"};
    }
    parts.push_back(*part);
  }
  return parts;
}

Result<Request::Part> Growths::part_of(const Session& session, const GrowthPart& one) const {
  const auto found = session.slices.find(one.slice);
  if (found == session.slices.end()) return Error{Code::kNotFound, "the session has no such slice"};
  const DeviceIndex device = found->second.device;
  const Bytes granularity = state_.policy.devices[device].granularity;
  const auto bytes = one.bytes.rounded_up(granularity);
  const auto min_bytes = (one.min_bytes.is_zero() ? one.bytes : one.min_bytes).rounded_up(granularity);
  if (!bytes || !min_bytes || min_bytes->is_zero()) {
    return Error{Code::kInvalidArgument, std::to_string(one.bytes.count) + " bytes cannot be asked for"};
  }
  if (*min_bytes > *bytes) {
    return Error{Code::kInvalidArgument,
                 "at least " + to_string(*min_bytes) + " of " + to_string(*bytes) + " cannot be asked for"};
  }
  return Request::Part{one.slice, device, *bytes, *min_bytes, one.largest};
}

// The room of the tenant's limit besides its contexts, which stay as long as their programs do.
Bytes Growths::room_besides_contexts(TenantId tenant, DeviceIndex device) const {
  Bytes declared;
  for (const SessionId id : state_.tenants.sessions_of(tenant)) {
    const auto& outside = state_.session(id).outside;
    if (const auto found = outside.find(device); found != outside.end()) declared += found->second.declared;
  }
  const Bytes contexts = state_.ledger.outside(tenant, device).minus(declared);
  return state_.ledger.quota(tenant, device).limit.minus(contexts);
}

// A request that can never be granted is refused with the reason, so it is not cut down to nothing.
Result<Request::Parts> Growths::parts_of(const CommandJob& job, const ReserveForJob& asked) const {
  const auto device = state_.find_device(asked.device);
  if (!device) return device.error();
  const Bytes granularity = state_.policy.devices[*device].granularity;
  const TenantId tenant = state_.tenants.owner_of(job.leaf);
  const Bytes all =
      std::min({state_.ledger.ceiling(job.leaf, *device), room_besides_contexts(tenant, *device),
                state_.ledger.quota(tenant, *device).reserve});
  const Bytes most = all.minus(state_.ledger.reservation(job.leaf, *device));
  const auto bytes = asked.bytes.rounded_up(granularity);
  if (!bytes || bytes->is_zero())
    return Error{Code::kInvalidArgument, std::to_string(asked.bytes.count) + " bytes cannot be reserved"};
  const Bytes part = most < granularity ? *bytes : std::min(*bytes, most.rounded_down(granularity));
  return Request::Parts{Request::Part{{}, *device, part, part}};
}

// A request that may not wait still gets the time that memory on its way back needs. For a guarantee that is
// lent to others, it gets the time that they have to give it back.
TimePoint Growths::deadline_of(const Request& request, TimePoint now) const {
  const Policy& policy = state_.policy;
  Duration patience = request.wait;
  for (const Request::Part& part : request.parts) {
    if (!state_.ledger.charges(part.device)[Charge::kReturning].is_zero())
      patience = std::max(patience, policy.return_grace);
    const ReclaimPolicy& reclaim = policy.devices[part.device].reclaim;
    const Bytes claimable = state_.ledger.claimable(request.tenant, part.device);
    const bool may_claim =
        !request.is_reservation() && needed_of(state_.ledger, request, part.device) <= claimable;
    if (reclaim.lend_guarantees && may_claim)
      patience = std::max(patience, reclaim.deadline + policy.return_grace);
  }
  return now + patience;
}

void Growths::ask_context(RequestId id, const Session& session, DeviceIndex device, Duration wait,
                          TimePoint now) {
  wait = std::clamp(wait, Duration::zero(), state_.policy.max_wait);
  if (check_room(session.id, session.peer.account()))
    contexts_.announce(id, session, device, wait, now);
  else
    state_.outbox.emit(AnswerGrow{id, Grant{}});  // the driver decides
}

void Growths::wait_or_refuse_put_off(TimePoint now) {
  for (const RequestId id : std::exchange(put_off_, {})) wait_or_refuse(id, now);
}

void Growths::wait_or_refuse(RequestId id, TimePoint now) {
  const Request* waiting = state_.arbiter.find(id);
  if (waiting == nullptr) return;
  if (waiting->is_context() && contexts_.leave_to_driver(id, now)) {
    state_.arbiter.remove(id);
    return;
  }
  if (elastic_.is_creating_for(*waiting)) return put_off_.push_back(id);
  if (waiting->due <= now) return refuse_waiting(id, now);  // nobody is asked for what nobody waits for
  // The next broker asks the driver anew what lacks for a context.
  if (!waiting->is_context()) {
    places_.note(*waiting);
    state_.arbiter.set_recorded(id);
  }
  Event& event = state_.note(Event::Kind::kWaiting, state_.session(waiting->session), now);
  event.request = id;
  event.device = waiting->parts.front().device;
  event.bytes = waiting->parts.front().bytes;
  event.deadline = waiting->deadline;
}

void Growths::cancel(RequestId id, TimePoint now) {
  if (const auto removed = state_.arbiter.remove(id)) {
    Event& event = state_.note(Event::Kind::kWithdrawn, state_.session(removed->session), now);
    event.request = id;
    event.device = removed->parts.front().device;
    event.bytes = removed->parts.front().bytes;
    note_waited(*removed, now);
    places_.forget(*removed);
  }
  if (auto assembly = assemblies_.extract(id); !assembly.empty()) undo(assembly.mapped());
  contexts_.drop(id, now);
}

void Growths::refuse(const Request& request, const Refusal& refusal, TimePoint now) {
  if (request.is_context() && contexts_.leave_to_driver(request.id, now)) return;
  Denial denial = explainer_.denial_of(request, refusal, now);
  Error error{code_of(denial), explain(denial)};
  if (!request.is_probe) {
    Event& event = state_.note(Event::Kind::kDenied, state_.session(request.session), now);
    event.request = request.id;
    event.device = request.parts[refusal.part].device;
    event.bytes = request.parts[refusal.part].min_bytes;
    event.waited = now - request.asked + request.unread;
    event.words = error.message;
  }
  note_denied(request, now - request.asked);
  places_.forget(request);
  if (request.is_context()) contexts_.refused(request, now);
  state_.outbox.emit(AnswerGrow{request.id, GrowFailure{std::move(error), std::move(denial)}});
}

// A request to reserve is no request of a program.
void Growths::note_denied(const Request& request, Duration waited) {
  Session& session = state_.session(request.session);
  const bool counts = request.is_growth() && !request.is_probe;
  if (counts) ++session.slices.at(request.parts.front().slice).denied;
  if (counts) ++session.denied;
  session.waited += waited;
  if (CommandJob* const job = state_.find_job(request.job)) jobs_.note_denied(*job, waited, counts);
}

void Growths::note_waited(const Request& request, TimePoint now) {
  state_.session(request.session).waited += now - request.asked;
  if (CommandJob* const job = state_.find_job(request.job)) jobs_.note_waited(*job, now - request.asked);
}

void Growths::answer(RequestId id, Error error) {
  state_.outbox.emit(AnswerGrow{id, GrowFailure{std::move(error), std::nullopt}});
}

// A request for several devices can be overdue on each of them.
void Growths::refuse_waiting(RequestId id, TimePoint now) {
  if (const auto request = state_.arbiter.remove(id)) refuse(*request, explainer_.obstacle(*request), now);
}

void Growths::refuse_infeasible(TimePoint now) {
  std::vector<std::pair<RequestId, Refusal>> infeasible;
  state_.arbiter.for_each([&](const Request& request) {
    if (const auto refusal = explainer_.infeasible(request)) infeasible.emplace_back(request.id, *refusal);
  });
  for (const auto& [id, refusal] : infeasible) refuse(*state_.arbiter.remove(id), refusal, now);
}

void Growths::refuse_expired(TimePoint now) {
  for (const Request& request : state_.arbiter.remove_expired(now, kMostRefusedInARow))
    refuse(request, explainer_.obstacle(request), now);
}

void Growths::leave_to_next() {
  for (const auto& [id, session] : state_.sessions) {
    for (const Request& request : state_.arbiter.remove_all_of(id)) {
      if (!request.is_context()) places_.leave_to_next(request);
      answer(request.id, {Code::kUnavailable, "the broker is stopping; what is mapped stays usable"});
    }
  }
}

void Growths::end(Session& session, TimePoint now) {
  for (const Request& request : state_.arbiter.remove_all_of(session.id)) {
    note_waited(request, now);
    places_.forget(request);
  }
  for (const RequestId id : std::vector(session.assemblies.begin(), session.assemblies.end()))
    undo(assemblies_.extract(id).mapped());
  places_.release_all_of(session.id);
}

std::optional<TimePoint> Growths::answer_due(RequestId id) const {
  if (const Request* waiting = state_.arbiter.find(id)) return waiting->deadline;
  return assemblies_.contains(id) || contexts_.is_under_way(id) ? std::optional(TimePoint::max())
                                                                : std::nullopt;
}

void Growths::add_to(Checkpoint& checkpoint) const {
  places_.add_to(checkpoint);
  const auto add = [&](const Request& request) {
    if (request.is_recorded)
      checkpoint.waiting.emplace(std::pair(request.session, request.id), checkpoint_of(request));
  };
  state_.arbiter.for_each(add);
  for (const auto& [id, assembly] : assemblies_) add(assembly.granted.request);
}

}  // namespace gpumem::core
