#include <algorithm>

#include "daemon/core/reclaim/explainer.h"

// The lists that explanations and viewers are shown.

namespace gpumem::core {

WaitingPage Explainer::waiting(RequestId after, std::size_t most, const IsWanted& is_wanted,
                               TimePoint now) const {
  WaitingPage page;
  std::map<DeviceIndex, Bytes> asked_back;
  const Request* next = state_.arbiter.first_after(after);
  for (std::size_t visited = 0; next != nullptr && visited < kMostVisited && page.requests.size() < most;
       ++visited, next = state_.arbiter.first_after(next->id)) {
    page.next = next->id;
    if (!is_wanted(state_.tenants.name(state_.tenants.owner_of(next->tenant)))) continue;
    const Refusal refusal = obstacle(*next);
    Denial& denial = page.requests.emplace_back(quick_figures_of(*next, refusal, now));
    const DeviceIndex device = next->parts[refusal.part].device;
    const auto [known, is_new] = asked_back.try_emplace(device);
    if (is_new) known->second = reclaimer_.asked_back(device);
    denial.asked_back = known->second;
  }
  if (next == nullptr) page.next = {};
  return page;
}

std::vector<Standing> Explainer::standings(TenantId tenant, const std::vector<SessionId>& sessions) const {
  const Ledger& ledger = state_.ledger;
  std::vector<SessionId> all = sessions;
  if (auto own = state_.tenants.sessions_of(tenant); !own.empty()) all = std::move(own);
  std::vector<Standing> standings;
  for (DeviceIndex device = 0; device < state_.policy.devices.size(); ++device) {
    Standing& standing = standings.emplace_back();
    standing.device = device;
    standing.quota = ledger.quota(tenant, device);
    standing.charged = ledger.used(tenant, device);
    standing.available = ledger.available_on_demand(tenant, device, {state_.arbiter.spoken_for({}, device)});
    standing.waiting = state_.arbiter.waiting(device);
    standing.burst = ledger.burst(tenant, device);
    standing.debt = ledger.debt(tenant, device);
    for (const SessionId id : all) {
      const Session& session = state_.session(id);
      if (const auto outside = session.outside.find(device); outside != session.outside.end()) {
        standing.declared += outside->second.declared;
        standing.overhead += outside->second.overhead + outside->second.room;
      }
      const auto asked = session.asked.find(device);
      if (asked == session.asked.end()) continue;
      const ReclaimRequest& one = asked->second;
      const Bytes bytes = one.own + one.for_siblings + one.denied();
      if (bytes.is_zero()) continue;
      standing.asked_back += bytes;
      standing.asked_back_until = std::min(standing.asked_back_until.value_or(one.due()), one.due());
    }
    standing.past_broker = ledger.outside(tenant, device).minus(standing.declared + standing.overhead);
  }
  return standings;
}

}  // namespace gpumem::core
