#include <algorithm>

#include "daemon/core/reclaim/reclaimer.h"
#include "daemon/core/words/algorithms.h"

// The sessions that could give memory back, and how much.

namespace gpumem::core {

bool Reclaimer::is_victim(const Session& session, DeviceIndex device, ReclaimCause cause,
                          Belief belief) const {
  if (session.detached) return true;
  if (session.exited || terminations_.contains(session.id, device)) return false;
  // A session without a lane cannot receive a reclaim request. It can only be terminated.
  const bool ends = state_.policy.devices[device].reclaim.escalation == Escalation::kEndSession;
  if (session.ended && !(ends && session.peer.can_be_ended)) return false;
  if (cause == ReclaimCause::kClaims && !session.peer.can_be_ended) return false;
  return belief == Belief::kSpentHaveSome || !devices_[device].spent.contains(session.id);
}

Bytes Reclaimer::answerable(const Session& session, DeviceIndex device) const {
  const Holding& holding = session.holding(device);
  if (session.detached) return holding.held();  // all of it is returned at once
  return holding.held() - holding.fabric.held() + pinned(session, device);
}

// Memory that the session left behind with its lane, and memory that it returned but did not let go of. The
// latter counts only beyond the memory of others that can also be the reason why the driver does not prove it
// free, and only in whole leases, since each is proved as one. Memory given out by fabric handles does not
// count: terminating the session would not free it.
Bytes Reclaimer::pinned(const Session& session, DeviceIndex device) const {
  const Holding& holding = session.holding(device);
  const Bytes left_behind =
      holding.charges[Charge::kQuarantined] - holding.fabric[Charge::kQuarantined] - holding.unproved;
  const Bytes hindered = state_.hinders_proofs[device];
  if (hindered.is_zero() || holding.unproved.is_zero()) return left_behind + holding.unproved;
  Bytes smallest = holding.unproved;
  for (const Lease& lease : session.leases)
    if (lease.device == device && lease.unproved && !lease.fabric)
      smallest = std::min(smallest, lease.extent.size);
  const Bytes kept = holding.unproved.minus(hindered);
  return left_behind + (kept < smallest ? Bytes{} : kept);
}

Bytes Reclaimer::givable(TenantId tenant, DeviceIndex device, ReclaimCause cause, Belief belief,
                         TimePoint now) const {
  Bytes sum;
  for (const SessionId id : state_.tenants.at(tenant).sessions) {
    const Session& session = state_.session(id);
    if (is_victim(session, device, cause, belief)) sum += answerable(session, device);
  }
  if (cause == ReclaimCause::kDebt) return sum;
  const Ledger& ledger = state_.ledger;
  // A job that returns memory of its reservation frees none for the next in the line.
  const bool for_line = cause == ReclaimCause::kFairness;
  const Bytes kept = for_line ? ledger.reservation(tenant, device) : ledger.reserved(tenant, device);
  // Memory of processes that are being terminated is on its way: only the rest may be asked for.
  return std::min(sum,
                  ledger.borrowed(tenant, device).minus(terminations_.coming(device, tenant, now) + kept));
}

std::vector<std::pair<Bytes, SessionId>> Reclaimer::victims(TenantId tenant, DeviceIndex device,
                                                            Belief belief) const {
  std::vector<std::pair<Bytes, SessionId>> all;
  for (const SessionId id : state_.tenants.at(tenant).sessions) {
    const Session& session = state_.session(id);
    const Bytes bytes = answerable(session, device);
    if (!bytes.is_zero() && is_victim(session, device, ReclaimCause::kDebt, belief))
      all.emplace_back(bytes, id);
  }
  largest_first(all);
  // Sessions that are asked by force stay in front, however much they have left. Otherwise a session that
  // returns a little would pass the rest on, and nobody would ever be late.
  std::stable_partition(all.begin(), all.end(), [&](const auto& one) {
    const auto& asked = state_.session(one.second).asked;
    const auto found = asked.find(device);
    return found != asked.end() && found->second.forced && !found->second.own.is_zero();
  });
  // Sessions with inherited memory come first: they were asked for it together with its holder, and now hold
  // it alone.
  std::stable_partition(all.begin(), all.end(), [&](const auto& one) {
    return !state_.session(one.second).holding(device).inherited.is_zero();
  });
  // Sessions that cannot be terminated come last: they are asked only for what the others cannot cover.
  std::stable_partition(all.begin(), all.end(),
                        [&](const auto& one) { return state_.session(one.second).peer.can_be_ended; });
  // Detached sessions come first of all: no process needs their memory.
  std::stable_partition(all.begin(), all.end(),
                        [&](const auto& one) { return state_.session(one.second).detached; });
  return all;
}

std::vector<std::pair<Bytes, SessionId>> Reclaimer::declarers(TenantId tenant, DeviceIndex device,
                                                              Belief belief) const {
  std::vector<std::pair<Bytes, SessionId>> all;
  const auto look_at = [&](SessionId id) {
    const Session& session = state_.session(id);
    const Bytes bytes = session.declared(device);
    if (!bytes.is_zero() && state_.charged_besides(session, device) == tenant &&
        is_victim(session, device, ReclaimCause::kDebt, belief))
      all.emplace_back(bytes, id);
  };
  // On the host store a session is charged where it is; its user may have hundreds of jobs.
  if (state_.policy.devices[device].is_host())
    std::ranges::for_each(state_.tenants.at(tenant).sessions, look_at);
  else
    std::ranges::for_each(state_.declaring[device], look_at);
  largest_first(all);
  return all;
}

}  // namespace gpumem::core
