#include "daemon/core/arbiter/waiting_requests.h"

#include <algorithm>

#include "base/check.h"
#include "daemon/core/words/algorithms.h"

namespace gpumem::core {

const Request& WaitingRequests::add(Request request) {
  const auto [place, is_new] = requests_.emplace(request.id, std::move(request));
  GPUMEM_CHECK(is_new, "a request comes once");
  const Request& added = place->second;
  deadlines_.emplace(added.deadline, added.id);
  by_session_[added.session].insert(added.id);
  ++by_account_[added.account];
  for (const Request::Part& part : added.parts) {
    on_device_[part.device].insert(added.id);
    by_slice_[part.slice] += part.bytes;
  }
  count(added, true);
  return added;
}

Request WaitingRequests::take(RequestId id) {
  Request request = std::move(requests_.extract(id).mapped());
  deadlines_.erase({request.deadline, id});
  drop_from(by_session_, request.session, id);
  const auto account = by_account_.find(request.account);
  if (--account->second == 0) by_account_.erase(account);
  count(request, false);
  for (const Request::Part& part : request.parts) {
    on_device_[part.device].erase(id);
    const auto slice = by_slice_.find(part.slice);
    slice->second -= part.bytes;
    if (slice->second.is_zero()) by_slice_.erase(slice);
  }
  return request;
}

const Request* WaitingRequests::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

void WaitingRequests::set_tenant(SessionId session, TenantId tenant, CommandJobId job, TenantId besides) {
  for (const RequestId id : of(session)) {
    Request& request = requests_.at(id);
    count(request, false);
    if (!request.is_reservation()) request.tenant = request.is_context() ? besides : tenant;
    count(request, true);  // a job's leaf stays, and may be another tenant's now
    if (request.is_growth()) request.job = job;
  }
}

std::vector<RequestId> WaitingRequests::of(SessionId session) const {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::size_t WaitingRequests::count_of(SessionId session) const {
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? 0 : found->second.size();
}

std::size_t WaitingRequests::count_of_account(std::uint64_t account) const {
  const auto found = by_account_.find(account);
  return found == by_account_.end() ? 0 : found->second;
}

bool WaitingRequests::waits_up_to(RequestId id, SessionId session, DeviceIndex device) const {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return false;
  const auto end = found->second.upper_bound(id);
  return std::any_of(found->second.begin(), end, [&](RequestId one) { return at(one).is_for(device); });
}

Bytes WaitingRequests::wanted_for(SliceId slice) const {
  const auto found = by_slice_.find(slice);
  return found == by_slice_.end() ? Bytes{} : found->second;
}

Bytes WaitingRequests::wanted_by(TenantId leaf, DeviceIndex device) const {
  const auto found = by_leaf_.find({leaf, device});
  return found == by_leaf_.end() ? Bytes{} : found->second;
}

void WaitingRequests::count(const Request& request, bool more) {
  for (const Request::Part& part : request.parts) {
    const std::pair key(request.tenant, part.device);
    Bytes& sum = by_leaf_[key];
    sum = more ? sum + part.min_bytes : sum - part.min_bytes;
    if (sum.is_zero()) by_leaf_.erase(key);
    if (touched_.empty() || touched_.back() != key) touched_.push_back(key);
  }
}

Claims::Claims(const WaitingRequests& requests, const Ledger& ledger)
    : requests_(requests), ledger_(ledger), devices_(ledger.device_count()) {}

void Claims::entitle(RequestId id, DeviceIndex device) {
  if (++devices_[device].entitled[id] > 1) return;
  // Only a request that is entitled on all its devices may overtake others and have memory held for it.
  const Request& request = requests_.at(id);
  const auto is_entitled = [&](const Request::Part& part) {
    return devices_[part.device].entitled.contains(id);
  };
  if (!std::ranges::all_of(request.parts, is_entitled)) return;
  const auto before = numbers_before_.find(id);
  add(request, before == numbers_before_.end() ? ++last_number_ : before->second);
}

void Claims::disentitle(RequestId id, DeviceIndex device) {
  auto& entitled = devices_[device].entitled;
  const auto found = entitled.find(id);
  if (--found->second > 0) return;
  entitled.erase(found);
  remove(id);
}

void Claims::renew(RequestId id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  const std::uint64_t number = found->second.number;
  remove(id);
  add(requests_.at(id), number);
}

void Claims::clear() {
  for (const auto& [id, place] : places_) numbers_before_[id] = place.number;
  for (OnDevice& on : devices_) {
    const std::uint64_t revision = on.revision + 1;
    on = {};
    on.revision = revision;
  }
  groups_.clear();
  places_.clear();
}

void Claims::keep_number(RequestId id) {
  if (const auto found = places_.find(id); found != places_.end()) numbers_before_[id] = found->second.number;
}

Bytes Claims::sum_without(RequestId id, DeviceIndex device) const {
  const auto own = devices_[device].claims.find(id);
  return devices_[device].sum - (own == devices_[device].claims.end() ? Bytes{} : own->second);
}

void Claims::add(const Request& request, std::uint64_t number) {
  DeviceSet set;
  for (const Request::Part& part : request.parts) set.push_back(part.device);
  std::ranges::sort(set);
  Group::Amounts amounts{};
  for (const Request::Part& part : request.parts) {
    OnDevice& on = devices_[part.device];
    const Bytes needed = needed_of(ledger_, request, part.device);
    on.claims.emplace(request.id, needed);
    on.numbers.insert(number);
    on.sum += needed;
    ++on.revision;
    on.joint += set.size() > 1 ? 1 : 0;
    const auto key = static_cast<std::size_t>(std::ranges::find(set, part.device) - set.begin());
    if (key < kKeys) amounts[key] = needed;
  }
  const auto [group, is_new] = groups_.try_emplace(set);
  if (is_new) {
    for (const DeviceIndex device : set) devices_[device].groups.push_back(&*group);
  }
  group->second.add(request.id, amounts);
  places_.emplace(request.id, Place{group, number});
}

void Claims::remove(RequestId id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  const auto [group, number] = found->second;
  places_.erase(found);
  for (const DeviceIndex device : group->first) {
    OnDevice& on = devices_[device];
    const auto claim = on.claims.find(id);
    on.sum -= claim->second;
    ++on.revision;
    on.joint -= group->first.size() > 1 ? 1 : 0;
    on.claims.erase(claim);
    on.numbers.erase(number);
  }
  group->second.remove(id);
  if (!group->second.empty()) return;
  for (const DeviceIndex device : group->first) std::erase(devices_[device].groups, &*group);
  groups_.erase(group);
}

std::optional<RequestId> Claims::first_at_most_free(DeviceIndex device, const Ledger& ledger,
                                                    RequestId after) const {
  std::optional<RequestId> first;
  for (const auto* group : devices_[device].groups) {
    Group::Amounts free{};
    for (std::size_t i = 0; i < std::min(kKeys, group->first.size()); ++i)
      free[i] = ledger.free(group->first[i]);
    const auto found = group->second.first_at_most(free, after);
    if (found && (!first || found->request < *first)) first = found->request;
  }
  return first;
}

}  // namespace gpumem::core
