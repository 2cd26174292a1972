#include "daemon/core/reclaim/reclaimer.h"

#include <algorithm>

#include "base/text/time_format.h"

// Planning and asking. reclaimer_victims.cc finds the sessions, reclaimer_overdue.cc handles sessions that do
// not comply, and reclaimer_siblings.cc asks sessions of one tenant for each other's requests.

namespace gpumem::core {
namespace {

const char* cause_of(const ReclaimTarget& target) {
  if (target.any_debt() > target.claims + target.fairness) return words_of(ReclaimCause::kDebt);
  return words_of(target.claims.is_zero() ? ReclaimCause::kFairness : ReclaimCause::kClaims);
}

}  // namespace

Reclaimer::Reclaimer(State& state)
    : state_(state), terminations_(state), devices_(state.policy.devices.size()) {}

std::vector<RequestId> Reclaimer::update(TimePoint now) {
  std::vector<RequestId> refused;
  if (terminations_.spare_compliant()) replan();
  for (DeviceIndex device = 0; device < devices_.size(); ++device) {
    Device& one = devices_[device];
    const std::pair seen(state_.ledger.revision(device), state_.arbiter.revision(device));
    if (seen == one.seen && !(one.due && *one.due <= now)) continue;
    one.seen = seen;
    const bool nobody_waits = state_.arbiter.waiting(device) == 0 && state_.ledger.in_debt(device).empty();
    if (nobody_waits && one.idle()) {
      one.due.reset();
      continue;
    }
    for (const RequestId id : update(device, now)) refused.push_back(id);
  }
  return refused;
}

void Reclaimer::tick(TimePoint now) {
  if (terminations_.spare_compliant()) replan();
  terminations_.carry_out(now);
}

std::vector<RequestId> Reclaimer::update(DeviceIndex device, TimePoint now) {
  Device& one = devices_[device];
  std::erase_if(one.spent, [&](const auto& entry) { return entry.second <= now; });
  renew_liabilities(device, now);
  one.due.reset();
  for (const auto& [id, until] : one.spent) wake(device, until);
  if (const auto given_up = terminations_.next_given_up(now)) wake(device, *given_up);
  renew_siblings(device, now);
  renew_manual(device, now);
  const ReclaimPlan plan = this->plan(device, Belief::kSpentHaveNothing, now);
  ask_sessions(device, plan.targets, now);
  ask_siblings(device, plan_siblings(device, plan, now), now);
  std::vector<RequestId> refused = watch_claims(device, plan, now);
  watch_debts(device, now);
  return refused;
}

// ---- Planning ----

Bytes Reclaimer::coming(DeviceIndex device, TimePoint now, TenantId of) const {
  return state_.ledger.charges(of, device)[Charge::kReturning] + terminations_.coming(device, of, now);
}

// Memory on its way back that jobs have reserved again then, and that others' claims do not get, since it
// lies within promises (Reservations). By the job's leaf and each tenant above it; none: all.
std::map<TenantId, Bytes> Reclaimer::reserved_again(DeviceIndex device, TimePoint now) const {
  std::map<TenantId, Bytes> again;
  if (state_.arbiter.claimed(device).is_zero()) return again;
  const Ledger& ledger = state_.ledger;
  std::vector<std::pair<std::vector<TenantId>, Bytes>> jobs;  // each with the way from its leaf to the top
  for (const CommandJobId id : state_.reserving[device]) {
    const TenantId leaf = state_.jobs.at(id).leaf;
    const Bytes bytes = ledger.refilled(leaf, device, coming(device, now, leaf));
    if (bytes.is_zero()) continue;
    auto& way = jobs.emplace_back(std::vector<TenantId>{}, bytes).first;
    for (TenantId node = leaf; node; node = ledger.parent(node)) way.push_back(node);
    for (const TenantId node : way) again[node] += bytes;
    again[{}] += bytes;
  }
  std::map<TenantId, Bytes> given;
  for (const auto& [way, bytes] : jobs) {
    Bytes part = bytes;
    for (const TenantId node : way) {
      const Bytes leaving = coming(device, now, node).minus(again.at(node));
      part = std::min(part, ledger.borrowed(node, device).minus(leaving + given[node]));
    }
    for (const TenantId node : way) given[node] += part;
    given[{}] += part;
  }
  for (auto& [node, bytes] : again) bytes -= given[node];
  return again;
}

template <class Plan>
auto Reclaimer::with_facts(DeviceIndex device, std::function<Bytes(TenantId)> coming,
                           const std::map<TenantId, Bytes>& declared, Belief belief, TimePoint now,
                           Plan plan) const {
  const auto givable = [&](TenantId tenant, ReclaimCause cause) {
    return this->givable(tenant, device, cause, belief, now);
  };
  const std::map<TenantId, Bytes> again = reserved_again(device, now);
  const auto staying = [&](TenantId below) {
    const auto found = again.find(below);
    return found == again.end() ? Bytes{} : found->second;
  };
  return plan(
      ReclaimFacts{state_.policy.devices[device].granularity, std::move(coming), givable, declared, staying});
}

ReclaimPlan Reclaimer::plan(DeviceIndex device, Belief belief, TimePoint now) const {
  const auto coming = [&](TenantId below) { return this->coming(device, now, below); };
  return with_facts(device, coming, {}, belief, now, [&](const ReclaimFacts& facts) {
    return plan_reclaim(state_.ledger, state_.arbiter, device, facts, plan_debts(device, belief, now));
  });
}

SiblingTargets Reclaimer::plan_siblings(DeviceIndex device, const ReclaimPlan& plan, TimePoint now) const {
  const auto coming = [&](TenantId below) { return this->coming(device, now, below); };
  return core::plan_siblings(state_.ledger, state_.arbiter, device, coming, plan);
}

// Memory that no session is asked for: it was taken past the broker (past_broker governs that), or it is of a
// context, which cannot be returned. No session is terminated for a debt of either.
Bytes Reclaimer::unasked_below(TenantId tenant, DeviceIndex device) const {
  const std::map<TenantId, Bytes>& unasked = state_.unasked[device];
  Bytes sum;
  if (const auto own = unasked.find(tenant); own != unasked.end()) sum += own->second;
  if (!state_.ledger.has_members(tenant)) return sum;
  for (const auto& [below, bytes] : unasked) {
    if (below != tenant && state_.tenants.is_below(below, tenant))
      sum += std::min(bytes, state_.ledger.outside_above(below, device));
  }
  return sum;
}

template <class Plan>
auto Reclaimer::with_debt_facts(DeviceIndex device, Belief belief, TimePoint now, Plan plan) const {
  const auto coming = [&](TenantId below) {
    return state_.ledger.charges(below, device)[Charge::kReturning] +
           terminations_.coming_with_outside(device, below, now) + unasked_below(below, device);
  };
  std::map<TenantId, Bytes> declared;
  for (const SessionId id : state_.declaring[device]) {
    const Session& session = state_.session(id);
    if (is_victim(session, device, ReclaimCause::kDebt, belief))
      declared[state_.charged_besides(session, device)] += session.declared(device);
  }
  return with_facts(device, coming, declared, belief, now, plan);
}

ReclaimTargets Reclaimer::plan_debt(DeviceIndex device, TenantId debtor, Belief belief, TimePoint now) const {
  return with_debt_facts(device, belief, now, [&](const ReclaimFacts& facts) {
    return core::plan_debt(state_.ledger, device, debtor, facts);
  });
}

// One return counts for the debts of a tenant and of all tenants above it, so the largest is asked for.
ReclaimTargets Reclaimer::plan_debts(DeviceIndex device, Belief belief, TimePoint now) const {
  ReclaimTargets targets;
  if (state_.ledger.in_debt(device).empty()) return targets;
  with_debt_facts(device, belief, now, [&](const ReclaimFacts& facts) {
    for (const TenantId debtor : state_.ledger.in_debt(device)) {
      const bool is_job = state_.tenants.is_job(debtor);
      for (const auto& [tenant, own] : core::plan_debt(state_.ledger, device, debtor, facts)) {
        ReclaimTarget& target = targets[tenant];
        Bytes& debt = is_job ? target.job_debt : target.debt;
        Bytes& declared = is_job ? target.job_declared : target.declared;
        debt = std::max(debt, own.debt);
        declared = std::max(declared, own.declared);
      }
    }
    return 0;
  });
  return targets;
}

// ---- Asking ----

void Reclaimer::ask_sessions(DeviceIndex device, const ReclaimTargets& targets, TimePoint now) {
  Shares shares = divide(device, targets, Belief::kSpentHaveNothing);
  ask_keepers(device, Shares(shares), shares);
  ask_keepers(device, withheld(device, now), shares);
  std::set<SessionId> before = std::exchange(devices_[device].asked, {});
  for (const auto& [id, share] : shares) {
    ask(state_.session(id), device, share, now);
    devices_[device].asked.insert(id);
    before.erase(id);
  }
  for (const SessionId id : before) {
    if (Session* session = state_.find(id)) ask(*session, device, {}, now);
  }
}

Reclaimer::Shares Reclaimer::divide(DeviceIndex device, const ReclaimTargets& targets, Belief belief) const {
  Shares shares;
  const auto divide_among = [&](Bytes open, const std::vector<std::pair<Bytes, SessionId>>& among,
                                const Share& kind, bool is_declared) {
    for (const auto& [bytes, id] : among) {
      if (open.is_zero()) break;
      const Bytes part = std::min(open, bytes);
      Share& share = shares.try_emplace(id, Share{{}, {}, kind.forced, kind.cause}).first->second;
      share.bytes += part;
      share.own += part;
      if (is_declared) share.declared += part;
      open -= part;
    }
  };
  for (const auto& [tenant, target] : targets) {
    const Share kind{{}, {}, !target.forced().is_zero(), cause_of(target)};
    if (!target.pool().is_zero()) divide_among(target.pool(), victims(tenant, device, belief), kind, false);
    if (!target.besides().is_zero())
      divide_among(target.besides(), declarers(tenant, device, belief),
                   {{}, {}, !target.declared.is_zero(), words_of(ReclaimCause::kDebt)}, true);
  }
  return shares;
}

// The parts that sessions would be asked for by force if they had not said that they have nothing to give.
// They can be terminated for these, but their memory comes back only when its importers let go, too.
Reclaimer::Shares Reclaimer::withheld(DeviceIndex device, TimePoint now) const {
  const auto& spent = devices_[device].spent;
  if (spent.empty() || state_.policy.devices[device].reclaim.escalation != Escalation::kEndSession) return {};
  const ReclaimTargets targets = plan(device, Belief::kSpentHaveSome, now).targets;
  Shares shares = divide(device, targets, Belief::kSpentHaveSome);
  std::erase_if(shares, [&](const auto& one) { return !one.second.forced || !spent.contains(one.first); });
  return shares;
}

// Returned memory is free only once its importers let go, too, so they are asked together with the holder. A
// session that says it has let go is asked as well: saying so must not gain time.
void Reclaimer::ask_keepers(DeviceIndex device, const Shares& of, Shares& shares) const {
  for (const auto& [holder, asked] : of) {
    for (const auto& [id, kept] : state_.imports.keepers(holder, device)) {
      const Session& session = state_.session(id);
      if (session.exited || terminations_.contains(id, device)) continue;
      Share& share = shares.try_emplace(id, Share{{}, {}, false, "memory that it has imported is asked back"})
                         .first->second;
      share.bytes = std::max(share.bytes, std::min(asked.bytes, kept.known));
      share.forced |= asked.forced;
    }
  }
}

void Reclaimer::ask(Session& session, DeviceIndex device, const Share& share, TimePoint now) {
  ReclaimRequest& request = session.asked[device];
  const bool becomes_forced = share.forced && !request.forced;
  const Bytes before = std::exchange(request.bytes, share.bytes);
  request.own = share.own;
  request.declared = share.declared;
  request.forced = share.forced;
  // A request becomes a new one, with a new deadline, when it becomes forced.
  if (before.is_zero() || becomes_forced) {
    request.deadline = now + state_.policy.devices[device].reclaim.deadline;
    if (const auto due = liable_until(session, device)) {
      request.deadline = std::clamp(*due, now, request.deadline);
    } else if (!has_let_go(session, device)) {
      // The session has kept nothing back. From now on this deadline is the only one that it has.
      request.liability.reset();
      devices_[device].liable.erase(session.id);
    }
  }
  if (before == share.bytes && !becomes_forced) return;
  tell(session, device, share.bytes > before || becomes_forced ? share.cause : nullptr, now);
}

// Reports a change of the session's reclaim request. `cause`  of more memory, or of the request becoming
// forced; null: the request became smaller.
void Reclaimer::tell(Session& session, DeviceIndex device, const char* cause, TimePoint now) {
  state_.outbox.touch(session.id);
  const ReclaimRequest& request = session.asked.at(device);
  if (cause != nullptr) {
    Event& event = state_.note(Event::Kind::kPressure, session, now);
    event.device = device;
    event.bytes = request.total();
    event.deadline = request.due();
    event.words =
        session.ended ? std::string(cause) + "; its lane is gone, so its process is waited for" : cause;
    if (!session.ended && !session.detached) state_.outbox.emit(RingDoorbell{session.id});
  } else if (request.total().is_zero()) {
    Event& event = state_.note(Event::Kind::kRelieved, session, now);
    event.device = device;
    if (devices_[device].spent.contains(session.id)) event.words = "it says that it has no more to give";
    if (request.denied().is_zero()) return;
    event.words += ", and is ended if nobody else has given " + to_string(request.denied()) + " within " +
                   span_text(std::chrono::ceil<std::chrono::milliseconds>(request.due() - now));
  }
}

void Reclaimer::spent(Session& session, DeviceIndex device, TimePoint now) {
  if (device >= devices_.size()) return;
  const auto asked = session.asked.find(device);
  if (asked == session.asked.end() || asked->second.total().is_zero()) return;
  const TimePoint until = now + kSpentDeadlines * state_.policy.devices[device].reclaim.deadline;
  bool is_news = devices_[device].helpless.insert_or_assign(session.id, until).second;
  if (!asked->second.bytes.is_zero()) {
    is_news |= note_pinned(session, device);
    const bool may_be_ended = state_.policy.devices[device].reclaim.escalation == Escalation::kEndSession &&
                              session.peer.can_be_ended;
    if (asked->second.liability && may_be_ended) asked->second.liability->denied = asked->second.bytes;
    is_news |= devices_[device].spent.insert_or_assign(session.id, until).second;
  }
  // A plan visits all sessions that could be asked, and many may say so at once: one plan serves them all.
  if (is_news) wake(device, now);
}

bool Reclaimer::presses(const Session& session, DeviceIndex device) const {
  if (terminations_.contains(session.id) || devices_[device].spent.contains(session.id)) return true;
  const auto found = session.asked.find(device);
  if (found == session.asked.end()) return false;
  return found->second.liability || (found->second.forced && !found->second.bytes.is_zero());
}

void Reclaimer::exited(SessionId session) {
  replan();
  terminations_.forget(session);
}

void Reclaimer::forget(SessionId session) {
  replan();
  terminations_.forget(session);
  for (Device& one : devices_) {
    one.asked.erase(session);
    one.spent.erase(session);
    one.liable.erase(session);
    one.siblings.erase(session);
    one.late.erase(session);
    one.helpless.erase(session);
    one.manual.erase(session);
  }
}

void Reclaimer::replan() {
  for (Device& one : devices_) one.seen = {};
}

Bytes Reclaimer::asked_back(DeviceIndex device) const {
  Bytes sum;
  for (const SessionId id : devices_[device].asked) sum += state_.session(id).asked.at(device).own;
  for (const SessionId id : devices_[device].siblings)
    sum += state_.session(id).asked.at(device).for_siblings;
  return sum;
}

void Reclaimer::wake(DeviceIndex device, TimePoint at) {
  auto& due = devices_[device].due;
  if (!due || at < *due) due = at;
}

std::optional<TimePoint> Reclaimer::next_deadline() const {
  std::optional<TimePoint> next = terminations_.next_deadline();
  for (const Device& one : devices_) {
    if (one.due && (!next || *one.due < *next)) next = one.due;
  }
  return next;
}

}  // namespace gpumem::core
