#include <algorithm>
#include <utility>

#include "base/text/printable.h"
#include "daemon/core/broker/broker.h"
#include "daemon/core/words/refusals.h"

// How sessions begin, end and are forgotten.

namespace gpumem::core {

namespace {

// This part of max_sessions is for administrators and for tenants with guarantees.
constexpr std::size_t kKeptShare = 8;

}  // namespace

Result<SessionId> Broker::open_session(const Peer& peer, std::string label, TimePoint now, CommandJobId job,
                                       bool is_admin) {
  if (auto right = check_label(label); !right) return right.error();
  const Policy& policy = state_.policy;
  if (state_.draining) return Error{Code::kUnavailable, "the broker is stopping"};
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  auto match = core::tenant_of(policy, peer);
  if (!match) return match.error();
  const std::size_t clients = state_.sessions.size() - state_.detached_sessions.size();
  const bool is_preferred = is_admin || has_guarantee(policy, *match);
  const std::size_t kept = is_preferred ? 0 : policy.max_sessions / kKeptShare;
  if (clients >= policy.max_sessions - kept) {
    return refusal(
        Bound::kSessions,
        "the broker has " + std::to_string(clients) + " sessions of " + std::to_string(policy.max_sessions) +
            ", its max_sessions" +
            (kept == 0 ? "" : ", and keeps the rest for administrators and for tenants with guarantees") +
            "; close some or raise it");
  }
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
  session->leaf = state_.tenants.leaf_of(*tenant);
  if (const CommandJob* const joined = jobs_.find(job, *tenant, peer)) {
    session->job = job;
    session->leaf = joined->leaf;
  }
  session->tenant_name = state_.tenants.name(*tenant);
  session->peer = peer;
  session->label = std::move(label);
  session->since = now;
  session->spent.begin(now);
  state_.note(Event::Kind::kOpened, *session, now);
  state_.outbox.record(checkpoint_of(*session));
  state_.sessions.emplace(id, std::move(session));
  state_.session_order.insert(id);
  state_.tenants.join(state_.session(id).leaf, id);
  // A new guarantee can put a waiter out of all hope, and so no longer ahead of others.
  settle(now);
  return id;
}

std::size_t Broker::clients_of(TenantId tenant) const {
  const auto is_of_it = [&](SessionId id) { return state_.session(id).tenant == tenant; };
  return state_.tenants.sessions_of(tenant).size() -
         static_cast<std::size_t>(std::ranges::count_if(state_.detached_sessions, is_of_it));
}

void Broker::session_ended(SessionId id, SessionEnd end, TimePoint now) {
  Session* known = state_.find(id);
  if (known == nullptr || known->exited) return;  // the end of a process is seen by its lane, too
  Session& session = *known;
  reclaimer_.replan();
  if (!std::exchange(session.ended, true)) {
    session.awaited = false;
    state_.note(Event::Kind::kEnded, session, now);
    state_.outbox.record(checkpoint_of(session));
  }
  contexts_.end(id, now);
  if (end == SessionEnd::kExited) {
    contexts_.look_again();
    session.exited = true;
    state_.note(Event::Kind::kDied, session, now);
    reclaimer_.exited(id);
    for (const auto& [device, request] : session.asked) reclaimer_.note_keepers(session, device);
    outside_.end(session);
  } else {
    for (const auto& [device, request] : session.asked) reclaimer_.note_pinned(session, device);
  }
  if (end == SessionEnd::kReleased) {  // nobody could ask its process for what it declared any more
    for (const auto& [device, outside] : session.outside)
      outside_.set(session, device, &OutsideCharge::declared, {});
  }
  sharer_.end(id);
  growths_.end(session, now);
  jobs_.lose_owner(id, now);
  leases_.end(session, end == SessionEnd::kLost, now);
  forget_if_done(id, now);
  serve(now);
}

bool Broker::end_some_regions(SessionId id, TimePoint now) {
  const Session* const session = state_.find(id);
  return session != nullptr && leases_.end_some_regions(*session, now);
}

bool Broker::end_some_regions(SessionId id, const Return& request, TimePoint now) {
  const auto session = state_.live(id);
  return session && leases_.end_some_regions(**session, request.slice, request.leases, now);
}

bool Broker::end_some_regions(SessionId id, const ReleaseImport& request, TimePoint now) {
  const auto session = state_.live(id);
  return session && leases_.end_some_regions(**session, request.import, now);
}

void Broker::forget_if_done(SessionId id, TimePoint now) {
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
  const TenantId leaf = session.leaf;
  const CommandJobId job = session.job;
  note_closed(session, now);
  outside_.end(session);
  reclaimer_.forget(id);
  state_.tenants.leave(leaf, id);
  state_.sessions.erase(id);
  state_.session_order.erase(id);
  state_.detached_sessions.erase(id);
  jobs_.end_if_done(job, now);
  state_.tenants.retire(leaf);
  state_.outbox.record(Checkpoint::SessionGone{id});
  state_.outbox.emit(ForgetSession{id});
}

void Broker::note_closed(Session& session, TimePoint now) {
  session.spent.advance(now);
  state_.spent.erase({session.id, {}});
  Event& event = state_.note(Event::Kind::kClosed, session, now);
  event.waited = session.waited;
  event.words = session.why;
  event.closing = std::make_shared<const Closing>(Closing{now - session.since, session.peer.command,
                                                          session.spent.sum.byte_seconds(),
                                                          session.spent.peak, session.denied});
  CommandJob* const job = state_.find_job(session.job);
  if (job != nullptr && job->why.empty()) job->why = session.why;
}

// None: there is none, or it cannot be known.
const Session* Broker::other_of_process(const Session& session) const {
  for (const SessionId id : state_.tenants.sessions_of(session.tenant)) {
    const Session& other = state_.session(id);
    if (id != session.id && !other.exited && other.peer.is_same_process(session.peer)) return &other;
  }
  return nullptr;
}

}  // namespace gpumem::core
