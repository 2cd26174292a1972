#include "daemon/core/arbiter.h"

#include <algorithm>

#include "base/check.h"

// What waits, and the order in which it goes. Granting is in arbiter_admit.cc.

namespace gpumem::core {

Arbiter::Arbiter(Ledger& ledger, std::vector<Bytes> granularities, Duration aging)
    : ledger_(ledger),
      granularities_(std::move(granularities)),
      aging_(aging),
      spots_(ledger.device_count()),
      rightful_(ledger.device_count()),
      claims_(ledger.device_count()),
      claimed_(ledger.device_count()),
      by_device_(ledger.device_count()),
      held_back_(ledger.device_count()),
      revisions_(ledger.device_count()),
      changed_(ledger.device_count(), true),
      promises_seen_(ledger.device_count()) {
  GPUMEM_CHECK(granularities_.size() == ledger.device_count(), "a granularity for every device");
}

// ---- What waits ----

void Arbiter::add(Request request) {
  const RequestId id = request.id;
  deadlines_.emplace(request.deadline, id);
  young_.emplace_back(request.asked, id);
  by_session_[request.session].insert(id);
  const auto [added, is_new] = waiting_.emplace(id, Waiter{std::move(request)});
  GPUMEM_CHECK(is_new, "a request comes once");
  const Request& kept = added->second.request;
  for (const Request::Part& part : kept.parts) {
    by_slice_[part.slice] += part.wanted;
    by_device_[part.device].insert(id);
    spots_[part.device][kept.tenant].line.add(id, part.least);
    refresh(kept.tenant, part.device);
  }
  joint_ += kept.parts.size() > 1 ? 1 : 0;
}

// Out of everything but the order, which the caller renews.
Request Arbiter::take_out(RequestId id) {
  Request request = std::move(waiting_.extract(id).mapped().request);
  deadlines_.erase({request.deadline, id});
  while (!young_.empty() && !waiting_.contains(young_.front().second)) young_.pop_front();
  const auto session = by_session_.find(request.session);
  session->second.erase(id);
  if (session->second.empty()) by_session_.erase(session);
  for (const Request::Part& part : request.parts) {
    const auto slice = by_slice_.find(part.slice);
    slice->second -= part.wanted;
    if (slice->second.is_zero()) by_slice_.erase(slice);
    by_device_[part.device].erase(id);
    spots_[part.device].at(request.tenant).line.remove(id);
  }
  joint_ -= request.parts.size() > 1 ? 1 : 0;
  return request;
}

std::optional<Request> Arbiter::remove(RequestId id) {
  if (!waiting_.contains(id)) return std::nullopt;
  Request request = take_out(id);
  for (const Request::Part& part : request.parts) refresh(request.tenant, part.device);
  return request;
}

std::vector<Request> Arbiter::remove_all_of(SessionId session) {
  std::vector<Request> removed;
  for (const RequestId id : requests_of(session)) removed.push_back(*remove(id));
  return removed;
}

std::vector<Request> Arbiter::remove_expired(TimePoint now) {
  std::vector<Request> removed;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now)
    removed.push_back(*remove(deadlines_.begin()->second));
  std::ranges::sort(removed, {}, &Request::id);
  return removed;
}

void Arbiter::age(TimePoint now) {
  for (; !young_.empty() && young_.front().first + aging_ <= now; young_.pop_front()) {
    const auto found = waiting_.find(young_.front().second);
    if (found == waiting_.end() || std::exchange(found->second.overdue, true)) continue;
    for (const Request::Part& part : found->second.request.parts)
      refresh(found->second.request.tenant, part.device);
  }
}

void Arbiter::set_aging(Duration aging, TimePoint now) {
  aging_ = aging;
  young_.clear();
  for (auto& [id, waiter] : waiting_) {
    waiter.overdue = false;
    young_.emplace_back(waiter.request.asked, id);
  }
  std::ranges::sort(young_);
  rebuild();
  age(now);
}

void Arbiter::rebuild() {
  static_cast<void>(ledger_.take_changed());
  std::vector<RequestId> ids;
  for (const auto& [id, waiter] : waiting_) ids.push_back(id);
  std::ranges::sort(ids);
  for (DeviceIndex device = 0; device < spots_.size(); ++device) {
    spots_[device].clear();
    held_back_[device].clear();
    rightful_[device].clear();
    claims_[device].clear();
    claimed_[device] = {};
  }
  for (const RequestId id : ids) {
    const Request& request = waiting_.at(id).request;
    for (const Request::Part& part : request.parts)
      spots_[part.device][request.tenant].line.add(id, part.least);
  }
  for (const RequestId id : ids) {
    const Request& request = waiting_.at(id).request;
    for (const Request::Part& part : request.parts) refresh(request.tenant, part.device);
  }
}

// ---- The order ----

void Arbiter::take_changes() {
  for (DeviceIndex device = 0; device < spots_.size(); ++device) {
    if (std::exchange(promises_seen_[device], ledger_.promises_revision(device)) ==
        ledger_.promises_revision(device))
      continue;
    std::vector<TenantId> leaves;
    for (const auto& [tenant, spot] : spots_[device]) {
      if (!spot.line.empty()) leaves.push_back(tenant);
    }
    for (const TenantId leaf : leaves) refresh(leaf, device);
  }
  for (const auto& [tenant, device] : ledger_.take_changed()) refresh(tenant, device);
}

// A change of a tenant's line or charge reaches the nodes on its way to the top, and no others.
void Arbiter::refresh(TenantId tenant, DeviceIndex device) {
  Spots& spots = spots_[device];
  changed_[device] = true;
  ++revisions_[device];
  for (TenantId node = tenant;; node = ledger_.parent(node)) {
    const auto found = spots.find(node);
    Spot* spot = found == spots.end() ? nullptr : &found->second;
    if (spot != nullptr) renew(*spot, node, device);
    if (!node) return;
    if (spot == nullptr) continue;  // the nodes above may be held back by a limit that has room now
    place_in(ledger_.parent(node), *spot, node, device);
    if (spot->empty()) spots.erase(node);
  }
}

void Arbiter::renew(Spot& spot, TenantId node, DeviceIndex device) {
  if (!held_back_[device].empty()) held_back_[device].erase(node);
  spot.candidate =
      spot.order.empty() ? candidate_of_leaf(spot, node, device) : candidate_of_inner(spot, node, device);
}

std::optional<Arbiter::Candidate> Arbiter::candidate_of_leaf(Spot& spot, TenantId leaf, DeviceIndex device) {
  set_claims_of_leaf(spot, leaf, device);
  if (spot.line.empty()) return std::nullopt;
  const Bytes room = ledger_.room(leaf, device);
  auto first = spot.line.first();
  if (!waiting_.at(first->request).overdue) {
    first = spot.line.first_at_most(room);
  } else if (first->least > room) {
    first.reset();
  }
  if (!first) return std::nullopt;
  return Candidate{first->request, leaf, first->least, waiting_.at(first->request).overdue,
                   first->request == spot.claim || first->request == spot.joint_claim};
}

void Arbiter::set_claims_of_leaf(Spot& spot, TenantId leaf, DeviceIndex device) {
  const Bytes unmet = spot.line.empty() ? Bytes{} : ledger_.unmet(leaf, device);
  RequestId single;
  RequestId joint;
  for (RequestId after; !unmet.is_zero() && !single;) {
    const auto found = spot.line.first_at_most(unmet, after);
    if (!found) break;
    after = found->request;
    if (!is_joint(after))
      single = after;
    else if (!joint)
      joint = after;
  }
  set_claim(spot.claim, device, single);
  set_claim(spot.joint_claim, device, joint);
}

std::optional<Arbiter::Candidate> Arbiter::candidate_of_inner(Spot& spot, TenantId node, DeviceIndex device) {
  auto candidate = spots_[device].at(spot.order.begin()->node).candidate;
  if (!node) return candidate;  // the top has no limit and no guarantee
  if (!ledger_.excess_at(node, candidate->tenant, device, candidate->least).is_zero()) {
    held_back_[device][node] = candidate->request;
    candidate.reset();
  }
  const bool claims = candidate && !candidate->is_claim &&
                      candidate->least <= ledger_.claimable(candidate->tenant, device, node);
  set_claim(spot.claim, device, claims ? candidate->request : RequestId{});
  if (claims) candidate->is_claim = true;
  return candidate;
}

void Arbiter::set_claim(RequestId& own, DeviceIndex device, RequestId claim) {
  if (own == claim) return;
  auto& rightful = rightful_[device];
  if (const auto old = rightful.find(own); own && --old->second == 0) {
    rightful.erase(old);
    remove_claim(own);
  }
  own = claim;
  if (claim && ++rightful[claim] == 1) add_claim(claim);
}

// With a request for several devices that is not wholly a claim, nobody may pass another or hold memory for
// it.
void Arbiter::add_claim(RequestId id) {
  const auto& parts = waiting_.at(id).request.parts;
  if (!std::ranges::all_of(parts,
                           [&](const Request::Part& part) { return rightful_[part.device].contains(id); }))
    return;
  for (const Request::Part& part : parts) {
    claims_[part.device][id] = part.least;
    claimed_[part.device] += part.least;
  }
}

void Arbiter::remove_claim(RequestId id) {
  for (DeviceIndex device = 0; device < claims_.size(); ++device) {
    const auto claim = claims_[device].find(id);
    if (claim == claims_[device].end()) continue;
    claimed_[device] -= claim->second;
    claims_[device].erase(claim);
  }
}

void Arbiter::place_in(TenantId parent, Spot& spot, TenantId node, DeviceIndex device) {
  std::optional<Place> place;
  if (const auto& candidate = spot.candidate) {
    const Quota& quota = ledger_.quota(node, device);
    const Bytes after = ledger_.burst(node, device) + candidate->least;
    place = Place{candidate->overdue, quota.priority, quota.share_of(after), candidate->request, node};
  }
  if (spot.place == place) return;
  auto& order = spots_[device][parent].order;
  if (auto node_of_set = spot.place ? order.extract(*spot.place) : decltype(order.extract(order.begin())){};
      place && node_of_set) {
    node_of_set.value() = *place;
    order.insert(std::move(node_of_set));
  } else if (place) {
    order.insert(*place);
  }
  spot.place = place;
}

// ---- Figures ----

std::optional<TimePoint> Arbiter::next_deadline() const {
  std::optional<TimePoint> next;
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  if (!young_.empty() && (!next || young_.front().first + aging_ < *next))
    next = young_.front().first + aging_;
  return next;
}

const Request* Arbiter::find(RequestId id) const {
  const auto found = waiting_.find(id);
  return found == waiting_.end() ? nullptr : &found->second.request;
}

std::optional<Arbiter::Candidate> Arbiter::first(DeviceIndex device) const {
  const auto top = spots_[device].find(TenantId{});
  return top == spots_[device].end() ? std::nullopt : top->second.candidate;
}

std::optional<RequestId> Arbiter::next(DeviceIndex device) const {
  const auto candidate = first(device);
  return candidate ? std::optional(candidate->request) : std::nullopt;
}

std::size_t Arbiter::waiting(DeviceIndex device, TenantId tenant) const {
  const auto found = spots_[device].find(tenant);
  return found == spots_[device].end() ? 0 : found->second.line.size();
}

Bytes Arbiter::waiting_bytes(SliceId slice) const {
  const auto found = by_slice_.find(slice);
  return found == by_slice_.end() ? Bytes{} : found->second;
}

std::size_t Arbiter::waiting_of(SessionId session) const {
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? 0 : found->second.size();
}

std::size_t Arbiter::waiting_before(RequestId id, DeviceIndex device) const {
  return by_device_[device].order_of_key(id);
}

std::vector<RequestId> Arbiter::requests_of(SessionId session) const {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return {};
  std::vector<RequestId> ids(found->second.begin(), found->second.end());
  std::ranges::sort(ids);
  return ids;
}

}  // namespace gpumem::core
