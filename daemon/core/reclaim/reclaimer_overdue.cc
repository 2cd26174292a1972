#include <algorithm>

#include "daemon/core/reclaim/reclaimer.h"

// The consequences if memory does not come back in time.

namespace gpumem::core {

// ---- Claims ----

std::vector<RequestId> Reclaimer::watch_claims(DeviceIndex device, const ReclaimPlan& plan, TimePoint now) {
  auto& lacking = devices_[device].lacking;
  const auto& claims = state_.arbiter.claims(device);
  const ReclaimPolicy& reclaim = state_.policy.devices[device].reclaim;
  if (reclaim.escalation == Escalation::kEndSession) end_for_claims(device, plan, now);
  if (plan.lack().is_zero() || reclaim.escalation != Escalation::kDeny) {
    lacking.clear();
    return {};
  }
  std::erase_if(lacking, [&](const auto& entry) {
    return !claims.contains(entry.first) || !lacks_memory(entry.first, device, plan);
  });
  for (const auto& [id, claim] : claims) {
    if (lacks_memory(id, device, plan)) lacking.try_emplace(id, now);
  }
  std::vector<RequestId> overdue;
  for (const auto& [id, since] : lacking) {
    if (since + reclaim.deadline <= now)
      overdue.push_back(id);
    else
      wake(device, since + reclaim.deadline);
  }
  for (const RequestId id : overdue) lacking.erase(id);
  return overdue;
}

// If only limits are in the way, only the claims below them lack memory. The others get their turn.
bool Reclaimer::lacks_memory(RequestId claim, DeviceIndex device, const ReclaimPlan& plan) const {
  if (!plan.claims_lack.is_zero()) return true;
  const Request& request = *state_.arbiter.find(claim);
  return bool{state_.ledger.limiting(request.tenant, device, needed_of(state_.ledger, request, device))};
}

void Reclaimer::end_for_claims(DeviceIndex device, const ReclaimPlan& asked, TimePoint now) {
  if (state_.arbiter.claims(device).empty()) return;
  // If no session is believed to have nothing to give, the plan for asking is also the plan for terminating.
  ReclaimPlan plan = devices_[device].spent.empty() ? asked : this->plan(device, Belief::kSpentHaveSome, now);
  while (!plan.lack().is_zero() && end_one(device, plan.targets, plan.lack(), ReclaimCause::kClaims, now))
    plan = this->plan(device, Belief::kSpentHaveSome, now);
}

// ---- Debts ----

void Reclaimer::watch_debts(DeviceIndex device, TimePoint now) {
  auto& debts = devices_[device].debts;
  const auto& in_debt = state_.ledger.in_debt(device);
  std::erase_if(debts, [&](const auto& entry) {
    if (in_debt.contains(entry.first)) return false;
    name_debtor(state_.outbox.note(Event::Kind::kDebtPaid, now), entry.first, device);
    return true;
  });
  for (const TenantId debtor : in_debt) {
    if (debts.try_emplace(debtor, now).second) {
      Event& event = state_.outbox.note(Event::Kind::kDebt, now);
      name_debtor(event, debtor, device);
      event.bytes = state_.ledger.debt(debtor, device);
    }
  }
  if (state_.policy.devices[device].reclaim.escalation != Escalation::kEndSession) return;
  for (const TenantId debtor : in_debt) end_for_debt(device, debtor, now);
}

// The debtor may be gone.
void Reclaimer::name_debtor(Event& event, TenantId debtor, DeviceIndex device) const {
  event.device = device;
  if (!state_.tenants.contains(debtor)) return;
  event.tenant = state_.tenants.name(state_.tenants.owner_of(debtor));
  const auto job =
      std::ranges::find_if(state_.jobs, [&](const auto& one) { return one.second.leaf == debtor; });
  if (job != state_.jobs.end()) event.job = job->first;
}

// Each debt has its own plan and its own victims; a job's has none.
void Reclaimer::end_for_debt(DeviceIndex device, TenantId debtor, TimePoint now) {
  const TimePoint due = devices_[device].debts.at(debtor) + state_.policy.devices[device].reclaim.deadline;
  if (due > now) return wake(device, due);
  for (;;) {
    const ReclaimTargets targets = plan_debt(device, debtor, Belief::kSpentHaveSome, now);
    Bytes lack;
    for (const auto& [tenant, target] : targets) lack += target.debt + target.declared;
    if (lack.is_zero()) return;
    if (!end_one(device, targets, lack, ReclaimCause::kDebt, now)) return;
  }
}

// ---- Termination ----

// Terminates one overdue session, of the tenant that should give most among those with an overdue session.
// False: there is no such session, and the reclaimer wakes when the next one becomes overdue.
bool Reclaimer::end_one(DeviceIndex device, const ReclaimTargets& targets, Bytes lack, ReclaimCause cause,
                        TimePoint now) {
  const Session* chosen = nullptr;
  Bytes most;
  for (const auto& [tenant, target] : targets) {
    const Bytes own = cause == ReclaimCause::kClaims ? target.claims : target.debt + target.declared;
    if (own <= most) continue;
    if (const Session* session = choose(charged_at(tenant, device), device, std::min(own, lack), now)) {
      chosen = session;
      most = own;
    }
  }
  if (chosen == nullptr) {
    for (const auto& [tenant, target] : targets) wake_for(charged_at(tenant, device), device, now);
    return false;
  }
  replan();
  const Bytes needed = std::min(most, lack);
  const Bytes own = std::min(needed, chosen->holding(device).leaving());
  terminations_.begin(*chosen, device, {own, own}, words_of(cause), now);
  end_keepers(*chosen, device, needed, cause, now);
  return true;
}

// Terminates importers of the holder's memory, which were asked together with it: the memory comes back only
// when they let go, too. An importer of another tenant is terminated only if the rest is less than `needed`.
// It is spared if it says that it has let go, since that may be true. If it is false, the importer is charged
// for the memory once the holder is gone.
void Reclaimer::end_keepers(const Session& holder, DeviceIndex device, Bytes needed, ReclaimCause cause,
                            TimePoint now) {
  const auto& keepers = state_.imports.keepers(holder.id, device);
  Bytes rest = holder.holding(device).leaving();
  for (const auto& [id, kept] : keepers) {
    if (state_.session(id).tenant != holder.tenant) rest = rest.minus(kept.used);
  }
  for (const auto& [id, kept] : keepers) {
    const Session& session = state_.session(id);
    const bool is_sibling = session.tenant == holder.tenant;
    if ((is_sibling ? kept.held_back() : kept.used).is_zero() || !(is_sibling || rest < needed)) continue;
    if (const auto due = due_of(session, device); due && *due <= now)
      terminations_.begin(session, device, {kept.held_back(), {}}, words_of(cause), now);
  }
}

// Whether the end of its process would bring nothing back.
bool Reclaimer::frees_nothing(const Session& session, DeviceIndex device) const {
  const Bytes bytes = session.holding(device).leaving() + session.declared(device);
  return (bytes + state_.imports.kept(session.id, device).held_back()).is_zero();
}

// The sessions with charges at the leaf: of its own, and sessions of jobs, whose declared memory of a GPU is
// charged to the rest.
std::vector<SessionId> Reclaimer::charged_at(TenantId leaf, DeviceIndex device) const {
  const auto& own = state_.tenants.at(leaf).sessions;
  std::vector<SessionId> sessions(own.begin(), own.end());
  for (const SessionId id : state_.declaring[device]) {
    const Session& session = state_.session(id);
    if (session.leaf != leaf && state_.charged_besides(session, device) == leaf) sessions.push_back(id);
  }
  return sessions;
}

// Chooses among the overdue sessions with the earliest due time, as if each had been visited when it became
// due: the smallest session that suffices, else the largest.
const Session* Reclaimer::choose(const std::vector<SessionId>& sessions, DeviceIndex device, Bytes needed,
                                 TimePoint now) const {
  const Session* chosen = nullptr;
  Bytes brings;
  TimePoint first = now;
  for (const SessionId id : sessions) {
    const Session& session = state_.session(id);
    if (frees_nothing(session, device)) continue;
    const Bytes bytes = session.holding(device).leaving() + session.declared(device);
    const auto due = due_of(session, device);
    if (!due || *due > first) continue;
    if (*due < first) chosen = nullptr;
    first = *due;
    const bool suffices = bytes >= needed;
    const bool is_better =
        chosen == nullptr || (suffices ? brings < needed || bytes < brings : bytes > brings);
    if (!is_better) continue;
    chosen = &session;
    brings = bytes;
  }
  return chosen;
}

// The time from which the session may be terminated. None: it may not.
std::optional<TimePoint> Reclaimer::due_of(const Session& session, DeviceIndex device) const {
  const auto found = session.asked.find(device);
  if (found == session.asked.end() || session.exited || session.detached || session.awaited ||
      !session.peer.can_be_ended || terminations_.contains(session.id, device))
    return std::nullopt;
  const ReclaimRequest& request = found->second;
  std::optional<TimePoint> due;
  const Imports::Kept kept = state_.imports.kept(session.id, device);
  const bool has_let_go = request.own.is_zero() && kept.held_back().is_zero();
  if (!request.bytes.is_zero() && request.forced && !has_let_go) due = request.deadline;
  const auto liable = liable_until(session, device);
  return liable && (!due || *liable < *due) ? liable : due;
}

void Reclaimer::wake_for(const std::vector<SessionId>& sessions, DeviceIndex device, TimePoint now) {
  for (const SessionId id : sessions) {
    if (const auto due = due_of(state_.session(id), device); due && *due > now) wake(device, *due);
  }
}

// ---- Liabilities of earlier reclaim requests ----

bool Reclaimer::note_pinned(Session& session, DeviceIndex device) {
  const bool is_due = note(session, device);
  return note_keepers(session, device) || is_due;
}

bool Reclaimer::note_keepers(const Session& session, DeviceIndex device) {
  bool is_due = false;
  for (const auto& [id, kept] : state_.imports.keepers(session.id, device))
    is_due |= note(state_.session(id), device);
  return is_due;
}

bool Reclaimer::note(Session& session, DeviceIndex device) {
  const auto found = session.asked.find(device);
  if (found == session.asked.end()) return false;
  ReclaimRequest& request = found->second;
  if (request.bytes.is_zero() || !request.forced) return false;
  const bool is_sooner = !request.liability || request.deadline < request.liability->due;
  if (is_sooner) {
    const Bytes denied = request.liability ? request.liability->denied : Bytes{};
    request.liability = {request.deadline, state_.arbiter.last_claim(), answers_for_debt(session, device),
                         denied};
  }
  return devices_[device].liable.insert(session.id).second || is_sooner;
}

// A liability ends when the need that it arose from is met, or when the session pins no memory. A session
// that was believed to have nothing to give is asked again for a new need, unless it has a liability for it.
void Reclaimer::renew_liabilities(DeviceIndex device, TimePoint now) {
  Device& one = devices_[device];
  std::erase_if(one.liable, [&](SessionId id) {
    Session& session = state_.session(id);
    auto& liability = session.asked.at(device).liability;
    const bool pins = has_let_go(session, device) || !state_.imports.kept(id, device).used.is_zero();
    const bool is_over = is_stale(*liability, session, device) || !(pins || one.spent.contains(id));
    if (is_over) liability.reset();
    return is_over;
  });
  const auto owes_nothing = [&](const auto& entry) { return !one.liable.contains(entry.first); };
  if (std::ranges::none_of(one.spent, owes_nothing)) return;
  const ReclaimTargets targets = plan(device, Belief::kSpentHaveSome, now).targets;
  std::erase_if(one.spent, [&](const auto& entry) {
    const Session& session = state_.session(entry.first);
    const auto target = targets.find(session.leaf);
    const auto declared = targets.find(state_.charged_besides(session, device));
    const bool is_asked = (target != targets.end() && !target->second.forced().is_zero()) ||
                          (declared != targets.end() && !declared->second.declared.is_zero());
    return owes_nothing(entry) && is_asked;
  });
}

bool Reclaimer::is_stale(const ReclaimRequest::Liability& liability, const Session& session,
                         DeviceIndex device) const {
  if (state_.arbiter.any_claim_up_to(liability.last_claim, device)) return false;
  return !liability.for_debt || !answers_for_debt(session, device);
}

// Whether it can be terminated for a debt of its tenant, or of one above it.
bool Reclaimer::answers_for_debt(const Session& session, DeviceIndex device) const {
  return std::ranges::any_of(state_.ledger.in_debt(device), [&](TenantId debtor) {
    const bool is_job = state_.tenants.is_job(debtor);
    return !is_job && state_.tenants.is_below(session.leaf, debtor) &&
           state_.ledger.debt(debtor, device) > unasked_below(debtor, device);
  });
}

// Whether memory that the session says it has let go of is not free yet.
bool Reclaimer::has_let_go(const Session& session, DeviceIndex device) const {
  const Holding& holding = session.holding(device);
  const Bytes given_back = holding.charges[Charge::kReturning] + holding.charges[Charge::kQuarantined];
  const Imports::Kept kept = state_.imports.kept(session.id, device);
  return given_back != holding.fabric[Charge::kQuarantined] || kept.known != kept.used;
}

// The due time of a liability from an earlier request. Memory that is being freed does not count.
std::optional<TimePoint> Reclaimer::liable_until(const Session& session, DeviceIndex device) const {
  const auto found = session.asked.find(device);
  if (found == session.asked.end() || !found->second.liability) return std::nullopt;
  const bool owes = !pinned(session, device).is_zero() || devices_[device].spent.contains(session.id) ||
                    !state_.imports.kept(session.id, device).suspected.is_zero();
  return owes ? std::optional(found->second.liability->due) : std::nullopt;
}

std::optional<TimePoint> Reclaimer::liable_until(DeviceIndex device) const {
  std::optional<TimePoint> until;
  for (const SessionId id : devices_[device].liable)
    if (const auto due = liable_until(state_.session(id), device))
      until = std::max(until.value_or(*due), *due);
  return until;
}

}  // namespace gpumem::core
