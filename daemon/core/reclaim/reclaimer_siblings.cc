#include <algorithm>

#include "daemon/core/reclaim/reclaimer.h"
#include "daemon/core/words/algorithms.h"

// Asks the sessions of one tenant to give memory back for each other's requests, and sessions that a person
// names. These amounts are separate from those asked for other tenants: no session is terminated for them,
// and they do not affect who is.

namespace gpumem::core {

void Reclaimer::ask_siblings(DeviceIndex device, const SiblingTargets& targets, TimePoint now) {
  Device& one = devices_[device];
  std::map<SessionId, Bytes> shares;
  Givers givers;
  for (const auto& [leaf, target] : targets) {
    Bytes open = target.bytes;
    for (const auto& [bytes, id] : siblings_of(leaf, device, target, givers)) {
      const Bytes part = std::min(open, bytes);
      if (part.is_zero()) break;
      shares[id] = std::max(shares[id], part);
      open -= part;
    }
  }
  for (const auto& [id, manual] : one.manual) {
    const Bytes open = answerable(state_.session(id), device).minus(manual.target);
    if (!open.is_zero()) shares[id] = std::max(shares[id], open);
  }
  std::set<SessionId> before = std::exchange(one.siblings, {});
  for (const auto& [id, bytes] : shares) {
    ask_sibling(state_.session(id), device, bytes, now);
    one.siblings.insert(id);
    before.erase(id);
  }
  for (const SessionId id : before) {
    if (Session* session = state_.find(id)) ask_sibling(*session, device, {}, now);
  }
}

// Found once for all that wait: a tenant may have a thousand jobs of which each has one session.
const std::vector<SessionId>& Reclaimer::givers_of(TenantId tenant, DeviceIndex device, Givers& known) const {
  const auto [found, is_new] = known.try_emplace(tenant);
  if (!is_new) return found->second;
  for (const SessionId id : state_.tenants.sessions_of(tenant))
    if (!answerable(state_.session(id), device).is_zero()) found->second.push_back(id);
  return found->second;
}

// The sessions that can give for the tenant's request, in the order in which they are asked, with the most
// that each can give. If the job's own limit holds the request back, they are the job's, else the tenant's.
// Empty if all together have less than the target.
std::vector<std::pair<Bytes, SessionId>> Reclaimer::siblings_of(TenantId leaf, DeviceIndex device,
                                                                const SiblingTarget& target,
                                                                Givers& givers) const {
  std::vector<std::pair<Bytes, SessionId>> all;
  if (target.bytes.is_zero()) return all;
  const Device& one = devices_[device];
  const Request& asking = *state_.arbiter.find(target.request);
  const Ledger& ledger = state_.ledger;
  const bool by_job = ledger.limiting(leaf, device, needed_of(ledger, asking, device)) == leaf;
  Bytes sum;
  for (const SessionId id : givers_of(by_job ? leaf : state_.tenants.owner_of(leaf), device, givers)) {
    if (id == asking.session) continue;
    const Session& session = state_.session(id);
    if (!may_be_asked(session, device, target.request)) continue;
    const auto asked = session.asked.find(device);
    const Bytes otherwise =
        asked == session.asked.end() ? Bytes{} : asked->second.own - asked->second.declared;
    Bytes bytes = answerable(session, device).minus(otherwise);
    // What a job returns of its reservation stays reserved.
    if (session.leaf != leaf)
      bytes = std::min(bytes,
                       ledger.on_loan(session.leaf, device).minus(ledger.reservation(session.leaf, device)));
    if (bytes.is_zero()) continue;
    all.emplace_back(bytes, id);
    sum += bytes;
  }
  if (sum < target.bytes) return {};
  largest_first(all);
  // Sessions that missed their deadline come last: they are asked only for what the others cannot cover.
  std::stable_partition(all.begin(), all.end(),
                        [&](const auto& each) { return !one.late.contains(each.second); });
  return all;
}

// A session may be asked if it waits for nothing on the device, or only for requests that came later. So of
// two sessions that wait, one makes progress.
bool Reclaimer::may_be_asked(const Session& session, DeviceIndex device, RequestId request) const {
  if (session.detached || session.ended || session.exited || terminations_.contains(session.id)) return false;
  if (devices_[device].helpless.contains(session.id)) return false;
  return !state_.arbiter.waits_up_to(request, session.id, device);
}

void Reclaimer::ask_sibling(Session& session, DeviceIndex device, Bytes bytes, TimePoint now) {
  ReclaimRequest& request = session.asked[device];
  const Bytes before = std::exchange(request.for_siblings, bytes);
  if (before.is_zero()) request.siblings_deadline = now + state_.policy.devices[device].reclaim.deadline;
  if (!bytes.is_zero() && request.siblings_deadline > now) wake(device, request.siblings_deadline);
  if (before == bytes) return;
  const auto manual = devices_[device].manual.find(session.id);
  const char* const cause = manual == devices_[device].manual.end() ? "another request of its tenant waits"
                                                                    : manual->second.by.c_str();
  tell(session, device, bytes > before ? cause : nullptr, now);
}

void Reclaimer::reclaim_manually(const Session& session, DeviceIndex device, Bytes bytes, std::string by,
                                 TimePoint now) {
  Device& one = devices_[device];
  one.helpless.erase(session.id);
  one.manual[session.id] = {answerable(session, device).minus(bytes), std::move(by), now + kManualLife};
  replan();
}

void Reclaimer::renew_manual(DeviceIndex device, TimePoint now) {
  Device& one = devices_[device];
  std::erase_if(one.manual, [&](const auto& entry) {
    const auto& [id, manual] = entry;
    return manual.until <= now || one.helpless.contains(id) || state_.session(id).ended ||
           answerable(state_.session(id), device) <= manual.target;
  });
  for (const auto& [id, manual] : one.manual) wake(device, manual.until);
}

// Notes the sessions that have missed their deadline, and forgets those whose time is up.
void Reclaimer::renew_siblings(DeviceIndex device, TimePoint now) {
  Device& one = devices_[device];
  const auto is_over = [&](const auto& entry) { return entry.second <= now; };
  std::erase_if(one.helpless, is_over);
  std::erase_if(one.late, is_over);
  const TimePoint until = now + kSpentDeadlines * state_.policy.devices[device].reclaim.deadline;
  for (const SessionId id : one.siblings) {
    if (state_.session(id).asked.at(device).siblings_deadline <= now) one.late.try_emplace(id, until);
  }
  for (const auto* words : {&one.helpless, &one.late}) {
    for (const auto& [id, time] : *words) wake(device, time);
  }
}

}  // namespace gpumem::core
