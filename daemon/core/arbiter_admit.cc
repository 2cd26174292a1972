#include <algorithm>

#include "daemon/core/arbiter.h"

// Who is granted what.

namespace gpumem::core {

std::vector<Granted> Arbiter::admit() {
  std::vector<Granted> granted;
  take_changes();
  for (bool progress = false, more = true; more; more = progress) {
    // What has changed on one device may be what a request for several has waited for on another.
    const bool any = joint_ != 0 && (progress || std::ranges::find(changed_, true) != changed_.end());
    progress = false;
    for (DeviceIndex device = 0; device < changed_.size(); ++device) {
      if (!changed_[device] && !any) continue;
      while (grant_one(device, granted)) progress = true;
      changed_[device] = false;
    }
  }
  return granted;
}

bool Arbiter::grant_one(DeviceIndex device, std::vector<Granted>& granted) {
  if (by_device_[device].empty() || ledger_.free(device) < granularities_[device]) return false;
  for (const auto& [id, claim] : claims_[device]) {
    if (!fits(waiting_.at(id).request)) continue;
    granted.push_back(grant(id));
    return true;
  }
  const auto candidate = first(device);
  if (!candidate || !fits(waiting_.at(candidate->request).request) || overtakes(candidate->request, device))
    return false;
  granted.push_back(grant(candidate->request));
  return true;
}

bool Arbiter::fits(const Request& request) const {
  return std::ranges::all_of(request.parts, [&](const Request::Part& part) {
    return ledger_.verdict(request.tenant, part.device, part.least, spoken_for(request.id, part.device)) ==
           Ledger::Verdict::kFits;
  });
}

// A request for several devices that is first here may not pass one on another that has waited long already.
bool Arbiter::overtakes(RequestId id, DeviceIndex device) const {
  const Request& request = waiting_.at(id).request;
  return std::ranges::any_of(request.parts, [&](const Request::Part& part) {
    if (part.device == device) return false;
    const auto other = first(part.device);
    return other && other->overdue && other->request < id;
  });
}

Granted Arbiter::grant(RequestId id) {
  struct Amount {
    Bytes bytes;
    Bytes spoken_for;
  };
  std::vector<Amount> amounts;
  for (const Request::Part& part : waiting_.at(id).request.parts) {
    const TenantId tenant = waiting_.at(id).request.tenant;
    Amount amount{part.least, spoken_for(id, part.device)};
    const bool alone = by_device_[part.device].size() == 1;
    if (alone && part.wanted > part.least) {
      const Bytes most = std::min(part.wanted, ledger_.available(tenant, part.device, amount.spoken_for));
      amount.bytes = std::max(part.least, most.rounded_down(granularities_[part.device]));
    }
    amounts.push_back(amount);
  }
  Granted granted{take_out(id), {}};
  for (std::size_t i = 0; i < amounts.size(); ++i) {
    ledger_.reserve(granted.request.tenant, granted.request.parts[i].device, amounts[i].bytes,
                    amounts[i].spoken_for);
    granted.bytes.push_back(amounts[i].bytes);
  }
  take_changes();
  return granted;
}

// Where the device lends idle guarantees, nothing else keeps for the claims that wait what they are waiting
// for.
Bytes Arbiter::spoken_for(RequestId id, DeviceIndex device) const {
  if (!ledger_.lends(device)) return {};
  const auto own = claims_[device].find(id);
  return claimed_[device] - (own == claims_[device].end() ? Bytes{} : own->second);
}

}  // namespace gpumem::core
