#include "daemon/core/broker.h"

#include <algorithm>

#include "daemon/core/refusals.h"

// Events: each goes to the part that is responsible. Those about shared memory are in broker_sharing.cc,
// changes of policy in broker_policy.cc, listings in listings.cc.

namespace gpumem::core {

Broker::Broker(Policy policy) : state_(std::move(policy)) {
  const auto& devices = state_.policy.devices;
  for (DeviceIndex i = 0; i < devices.size(); ++i)
    state_.ledger.set_lending(i, devices[i].reclaim.lend_guarantees);
  state_.tenants.put_in_force(state_.tenants.rules_under(state_.policy, {}), state_.policy.tenants);
}

// ---- Sessions ----

Result<SessionId> Broker::open_session(const Peer& peer, std::string label, TimePoint now) {
  const Policy& policy = state_.policy;
  if (state_.draining) return Error{Code::kUnavailable, "the broker is stopping"};
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  const std::size_t clients = state_.sessions.size() - state_.detached_sessions.size();
  if (clients >= policy.max_sessions) {
    return refusal(Bound::kSessions, "the broker has " + std::to_string(clients) +
                                         " sessions, its max_sessions; close some or raise it");
  }
  auto match = core::tenant_of(policy, peer);
  if (!match) return match.error();
  auto tenant = state_.tenants.admit(policy, *match);
  if (!tenant) return tenant.error();
  if (clients_of(*tenant) >= policy.max_sessions_per_tenant) {
    return refusal(Bound::kSessions, "tenant '" + match->name + "' has " +
                                         std::to_string(policy.max_sessions_per_tenant) +
                                         " sessions, its max_sessions_per_tenant; close some or raise it");
  }
  const SessionId id = state_.session_ids.next();
  auto session = std::make_unique<Session>();
  session->id = id;
  session->tenant = *tenant;
  session->tenant_name = state_.tenants.name(*tenant);
  session->peer = peer;
  session->label = std::move(label);
  session->since = now;
  state_.note(Event::Kind::kOpened, *session, now);
  state_.outbox.record(checkpoint_of(*session));
  state_.sessions.emplace(id, std::move(session));
  state_.session_order.insert(id);
  state_.tenants.join(*tenant, id);
  // A new guarantee can put a waiter out of all hope, and so no longer ahead of others.
  settle(now);
  return id;
}

std::size_t Broker::clients_of(TenantId tenant) const {
  const auto is_of_it = [&](SessionId id) { return state_.session(id).tenant == tenant; };
  return state_.tenants.at(tenant).sessions.size() -
         static_cast<std::size_t>(std::ranges::count_if(state_.detached_sessions, is_of_it));
}

void Broker::session_ended(SessionId id, SessionEnd end, TimePoint now) {
  Session* known = state_.find(id);
  if (known == nullptr) return;
  Session& session = *known;
  reclaimer_.replan();
  if (!std::exchange(session.ended, true)) {
    session.awaited = false;
    state_.note(Event::Kind::kEnded, session, now);
    state_.outbox.record(checkpoint_of(session));
  }
  if (end == SessionEnd::kExited) {
    session.exited = true;
    state_.note(Event::Kind::kDied, session, now);
    reclaimer_.exited(id);
    for (const auto& [device, request] : session.asked) reclaimer_.note_keepers(session, device);
    outside_.end(session);
  } else {
    for (const auto& [device, request] : session.asked) reclaimer_.note_pinned(session, device);
  }
  sharer_.end(id);
  growths_.end(session);
  leases_.end(session, end == SessionEnd::kLost, now);
  forget_if_done(id);
  serve(now);
}

void Broker::forget_if_done(SessionId id) {
  Session* known = state_.find(id);
  if (known == nullptr) return;
  Session& session = *known;
  if (!(session.ended || session.detached) || !session.leases.empty()) return;
  if (state_.imports.has_any(id)) return;
  if (state_.imports.knows(id)) {  // its import may keep memory in use that another session gave back
    const Session* other = other_of_process(session);
    if (other == nullptr) return;
    leases_.remember_with(id, other->id);
  }
  const TenantId tenant = session.tenant;
  outside_.end(session);
  reclaimer_.forget(id);
  state_.tenants.leave(tenant, id);
  state_.sessions.erase(id);
  state_.session_order.erase(id);
  state_.detached_sessions.erase(id);
  state_.tenants.retire(tenant);
  state_.outbox.record(Checkpoint::SessionGone{id});
  state_.outbox.emit(ForgetSession{id});
}

// None: there is none, or it cannot be known.
const Session* Broker::other_of_process(const Session& session) const {
  if (session.peer.started == 0) return nullptr;
  for (const SessionId id : state_.tenants.at(session.tenant).sessions) {
    const Session& other = state_.session(id);
    if (id != session.id && !other.exited && other.peer.pid == session.peer.pid &&
        other.peer.started == session.peer.started)
      return &other;
  }
  return nullptr;
}

// ---- Slices ----

Result<Slice> Broker::open_slice(SessionId id, const std::string& device, Bytes limit, std::string label) {
  auto session = state_.live(id);
  if (!session) return session.error();
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  const auto index = state_.find_device(device);
  if (!index) return index.error();
  const auto size = leases_.check_slice(**session, *index, limit);
  if (!size) return size.error();
  if (auto room = outside_.check_context(**session, *index); !room) return room.error();
  outside_.begin_context(**session, *index);
  return leases_.open_slice(**session, *index, *size, std::move(label));
}

Result<void> Broker::close_slice(SessionId id, SliceId slice, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  auto closed = leases_.close_slice(**session, slice);
  if (closed) settle(now);
  return closed;
}

// ---- Memory ----

std::optional<RequestId> Broker::place_kept(SessionId id, std::span<const Part> parts, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return std::nullopt;
  return growths_.place_kept(**session, parts, now);
}

void Broker::grow(RequestId id, SessionId session_id, std::span<const Part> parts, Duration wait,
                  TimePoint now) {
  const auto session = state_.borrower(session_id);
  if (!session) return growths_.answer(id, session.error());
  if (!growths_.ask(id, **session, parts, wait, now)) return;
  progress(now);
  growths_.wait_or_refuse(id, now);
  settle(now);
}

void Broker::cancel(RequestId id, TimePoint now) {
  sharer_.cancel(id);
  growths_.cancel(id, now);
  settle(now);
}

void Broker::abandon(GrantId grant, TimePoint now) {
  leases_.abandon(grant, now);
  settle(now);
}

Result<void> Broker::give_back(SessionId id, SliceId slice, std::span<const LeaseId> leases, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  const auto of = (*session)->slices.find(slice);
  if (of != (*session)->slices.end()) reclaimer_.note_pinned(**session, of->second.device);
  auto given = leases_.give_back(**session, slice, leases, now);
  if (given) settle(now);
  return given;
}

Result<void> Broker::charge(SessionId id, const std::string& device, Bytes declared, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return session.error();
  const auto index = state_.find_device(device);
  if (!index) return index.error();
  auto charged = outside_.declare(**session, *index, declared);
  if (charged) settle(now);
  return charged;
}

void Broker::spent(SessionId id, DeviceIndex device, TimePoint now) {
  auto session = state_.live(id);
  if (!session) return;
  reclaimer_.spent(**session, device, now);
  settle(now);
}

// ---- What the host reports ----

void Broker::observe(const Observation& observation, TimePoint now) {
  unmanaged_.observe(observation, now);
  settle(now);
}

void Broker::job_done(const JobResult& result, TimePoint now) {
  leases_.store(result.device).finish(result, now);
  settle(now);
}

void Broker::tick(TimePoint now) {
  state_.arbiter.age(now);
  growths_.refuse_expired(now);
  published_.drop_expired(now);
  sharer_.tick(now);
  reclaimer_.tick(now);
  unmanaged_.tick(now);
  serve(now);
  sharer_.refuse_expired(now);
}

std::optional<TimePoint> Broker::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto one :
       {state_.arbiter.next_deadline(), reclaimer_.next_deadline(), unmanaged_.next_deadline(),
        leases_.next_deadline(), regions_.next_expiry(), sharer_.next_deadline()}) {
    if (one && (!next || *one < *next)) next = one;
  }
  return next;
}

void Broker::drain() {
  state_.draining = true;
  growths_.leave_to_next();
  sharer_.refuse_all({Code::kUnavailable, "the broker is stopping"});
}

// ---- What follows ----

void Broker::settle(TimePoint now) {
  for (;;) {
    progress(now);
    const std::vector<RequestId> refused = reclaimer_.update(now);
    const bool gave_up = published_.give_up_kept(now);
    if (refused.empty() && !gave_up) break;
    for (const RequestId id : refused) growths_.refuse_waiting(id, now);  // which makes room for others
  }
}

void Broker::serve(TimePoint now) {
  settle(now);
  if (sharer_.serve_waits(now)) settle(now);
}

void Broker::progress(TimePoint now) {
  published_.note_left(now);
  for (auto freed = growths_.progress(now); !freed.empty(); freed = growths_.progress(now)) {
    for (const SessionId id : freed) forget_if_done(id);
  }
  for (const SessionId id : std::vector(state_.detached_sessions.begin(), state_.detached_sessions.end()))
    forget_if_done(id);
}

std::vector<Effect> Broker::take_effects() {
  std::vector<Effect> effects;
  take_effects(effects);
  return effects;
}

}  // namespace gpumem::core
