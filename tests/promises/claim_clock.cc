#include "tests/promises/claim_clock.h"

#include <algorithm>

namespace gpumem::core::promises {

std::string ClaimClock::update(const WatchedBroker& broker, const std::map<RequestId, OpenRequest>& open,
                               const Accounts& accounts, const Jobs& jobs, const std::vector<bool>& excused,
                               TimePoint now) {
  std::set<std::pair<std::string, DeviceIndex>> claiming;  // each has one claim at a time
  std::erase_if(since_, [&](const auto& entry) { return !open.contains(entry.first); });
  for (const auto& [id, request] : open) {
    if (!request.honest || request.reserves || request.least.size() != 1) continue;
    const auto& [device, least] = request.least.front();
    const ReclaimPolicy& reclaim = broker.device(device).reclaim;
    if (reclaim.escalation != Escalation::kEndSession) continue;
    const auto account = accounts.find({request.tenant, device});
    if (account == accounts.end()) continue;
    const Bytes left = account->second.quota.guarantee.minus(account->second.used());
    const auto job = jobs.find(request.job);
    const bool over_job =
        job != jobs.end() && least > job->second.devices[device].limit.minus(on_loan(job->second, device));
    const bool is_claim = least <= left && !over_job && !claiming.contains(account->first);
    if (excused[device] || (!request.granted && !is_claim)) {
      since_.erase(id);
      continue;
    }
    if (request.granted && !since_.contains(id)) continue;
    if (!request.granted) claiming.insert(account->first);
    const auto [since, is_new] = since_.try_emplace(id, now);
    seen_ += is_new ? 1 : 0;
    const Duration beyond = now - since->second - reclaim.deadline - reclaim.grace;
    longest_beyond_ = std::max(longest_beyond_, beyond);
    if (beyond <= broker.policy().return_grace + kSlack) continue;
    return "P2: request " + std::to_string(id.value) + " of " + to_string(least) + " of tenant " +
           request.tenant + " on device " + std::to_string(device) +
           " waits longer than its guarantee promises";
  }
  return {};
}

}  // namespace gpumem::core::promises
