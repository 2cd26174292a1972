#include "daemon/core/waiting_requests.h"

#include <algorithm>

#include "base/check.h"
#include "daemon/core/drop_from.h"

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
    by_slice_[part.slice] += part.wanted;
  }
  return added;
}

Request WaitingRequests::take(RequestId id) {
  Request request = std::move(requests_.extract(id).mapped());
  deadlines_.erase({request.deadline, id});
  drop_from(by_session_, request.session, id);
  const auto account = by_account_.find(request.account);
  if (--account->second == 0) by_account_.erase(account);
  for (const Request::Part& part : request.parts) {
    on_device_[part.device].erase(id);
    const auto slice = by_slice_.find(part.slice);
    slice->second -= part.wanted;
    if (slice->second.is_zero()) by_slice_.erase(slice);
  }
  return request;
}

const Request* WaitingRequests::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

void WaitingRequests::set_tenant(SessionId session, TenantId tenant) {
  for (const RequestId id : of(session)) requests_.at(id).tenant = tenant;
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

}  // namespace gpumem::core
