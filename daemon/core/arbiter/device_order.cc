#include "daemon/core/arbiter/device_order.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpumem::core {
DeviceOrder::DeviceOrder(const Ledger& ledger, DeviceIndex device, WaitingRequests& requests, Claims& claims,
                         const RequestId& last_overdue)
    : ledger_(ledger), device_(device), requests_(requests), claims_(claims), last_overdue_(last_overdue) {
  clear();
}

void DeviceOrder::clear() {
  nodes_.clear();
  find_or_add({});
  held_back_.clear();
  full_.clear();
  joint_ = 0;
}

void DeviceOrder::add(const Request& request) {
  const TenantId whole = ledger_.whole(request.tenant);
  if (whole != request.tenant) find_or_add(whole).parts.insert(request.tenant);
  Node& leaf = find_or_add(request.tenant);
  const Bytes bytes = request.part_on(device_).min_bytes;
  if (request.parts.size() == 1)
    return (request.is_reservation() ? leaf.reservations : leaf.queue).add(request.id, {bytes});
  JointQueue::Amounts amounts{};
  for (const Request::Part& part : request.parts)
    if (const auto key = key_of(part.device)) amounts[*key] = part.min_bytes;
  leaf.joint_queue.add(request.id, amounts);
  ++joint_;
}

void DeviceOrder::remove(const Request& request) {
  Node& leaf = find_or_add(request.tenant);
  if (request.parts.size() == 1)
    return (request.is_reservation() ? leaf.reservations : leaf.queue).remove(request.id);
  leaf.joint_queue.remove(request.id);
  --joint_;
}

// This device is the first key of joint requests.
std::optional<std::size_t> DeviceOrder::key_of(DeviceIndex device) const {
  const std::size_t key = device == device_ ? 0 : device < device_ ? device + 1 : device;
  return key < kKeys ? std::optional(key) : std::nullopt;
}

std::size_t DeviceOrder::waiting(TenantId tenant) const {
  const auto found = nodes_.find(tenant);
  if (found == nodes_.end()) return 0;
  const Node& leaf = found->second;
  return leaf.queue.size() + leaf.joint_queue.size() + leaf.reservations.size();
}

std::size_t DeviceOrder::waiting_below(TenantId tenant) const {
  if (!ledger_.has_members(tenant)) return waiting(tenant);
  std::size_t sum = 0;
  for (const auto& [id, node] : nodes_) {
    TenantId above = id;
    while (above && above != tenant) above = ledger_.parent(above);
    if (above) sum += waiting(id);
  }
  return sum;
}

// ---- Nodes ----

DeviceOrder::Node* DeviceOrder::find(TenantId tenant) {
  const auto found = nodes_.find(tenant);
  return found == nodes_.end() ? nullptr : &found->second;
}

DeviceOrder::Node& DeviceOrder::find_or_add(TenantId tenant) {
  if (!spare_.empty() && !nodes_.contains(tenant)) {
    spare_.key() = tenant;
    spare_.mapped().reserved = {};
    nodes_.insert(std::move(spare_));
  }
  Node& node = nodes_[tenant];
  node.tenant = tenant;
  return node;
}

// ---- The order ----

// A change of a tenant's queue or charge affects the nodes on the way to the top, and the other parts of the
// same tenant, which share its room.
void DeviceOrder::refresh(TenantId tenant) {
  const TenantId whole = ledger_.whole(tenant);
  if (Node* node = find(whole); node != nullptr) {
    for (const TenantId part : node->parts) {
      if (part == tenant) continue;
      Node& other = nodes_.at(part);
      renew(other);
      rank(other, whole);
    }
  }
  refresh_way_up(tenant);
}

void DeviceOrder::refresh_way_up(TenantId tenant) {
  ++revision_;
  for (TenantId at = tenant;;) {
    Node* node = find(at);
    if (node != nullptr) renew(*node);
    if (!at) return;
    at = ledger_.parent(at);
    if (node == nullptr) continue;  // the nodes above may be held back by a limit that has room now
    rank(*node, at);
    if (!node->empty()) continue;
    if (Node* above = find(at); above != nullptr) above->parts.erase(node->tenant);
    spare_ = nodes_.extract(node->tenant);
  }
}

void DeviceOrder::refresh_all() {
  std::vector<TenantId> leaves;
  for (const auto& [id, node] : nodes_) {
    if (!node.is_idle()) leaves.push_back(id);
  }
  for (const TenantId leaf : leaves) refresh_way_up(leaf);
}

// The leaf has more or less reserved than before, and its requests that are claims need less or more.
void DeviceOrder::renew_claims(const Node& leaf) {
  for (TenantId at = leaf.tenant; at; at = ledger_.parent(at)) {
    const Node* node = find(at);
    if (node == nullptr) continue;
    for (const RequestId id : {node->claim, node->joint_claim}) {
      const Request* request = requests_.find(id);
      if (request != nullptr && request->tenant == leaf.tenant) claims_.renew(id);
    }
  }
}

void DeviceOrder::renew(Node& node) {
  if (!node.is_idle()) {
    const Bytes reserved = ledger_.reserved(node.tenant, device_);
    if (std::exchange(node.reserved, reserved) != reserved) renew_claims(node);
  }
  if (!held_back_.empty()) held_back_.erase(node.tenant);
  if (node.full) full_.erase(std::exchange(node.full, {}));
  node.candidate = !node.parts.empty()     ? candidate_of_whole(node)
                   : node.children.empty() ? candidate_of_leaf(node)
                                           : candidate_of_inner(node);
}

Candidate DeviceOrder::candidate_of_leaf(Node& leaf) {
  set_claims_of_leaf(leaf);
  if (leaf.empty()) return {};
  Candidate candidate = first_of(leaf, false);
  if (!has_room(candidate) || exceeds_reserve(candidate)) {
    leaf.full = candidate.request;
    if (candidate.needed > ledger_.room(leaf.tenant, device_) || exceeds_reserve(candidate))
      full_[leaf.full] = leaf.tenant;
    candidate = candidate.overdue ? Candidate{} : first_of(leaf, true);
  }
  candidate.is_claim =
      candidate && (candidate.request == leaf.claim || candidate.request == leaf.joint_claim);
  return candidate;
}

bool DeviceOrder::has_room(const Request& request) const {
  return std::ranges::all_of(request.parts, [&](const Request::Part& part) {
    return needed_of(ledger_, request, part.device) <= ledger_.room(request.tenant, part.device);
  });
}

bool DeviceOrder::has_room(const Candidate& candidate) const {
  if (candidate.is_joint) return has_room(requests_.at(candidate.request));
  return candidate.needed <= ledger_.room(candidate.tenant, device_);
}

// Whether it would reserve more than the jobs of its tenant may have reserved.
bool DeviceOrder::exceeds_reserve(const Candidate& candidate) const {
  return candidate && requests_.at(candidate.request).is_reservation() &&
         candidate.needed > ledger_.reservable(candidate.tenant, device_);
}

// The first request of all queues; or the first that the leaf has room for.
Candidate DeviceOrder::first_of(const Node& leaf, bool with_room) const {
  const Bytes room = with_room ? ledger_.room(leaf.tenant, device_) : kUnlimited;
  auto first = first_within(leaf.queue, room.plus(leaf.reserved).value_or(kUnlimited));
  const auto joint = first_joint_of(leaf, with_room);
  const bool is_joint = joint && (!first || joint->request < first->request);
  if (is_joint) first = joint;
  Candidate candidate;
  candidate.tenant = leaf.tenant;
  candidate.is_joint = is_joint;
  if (first) {
    candidate.request = first->request;
    candidate.needed = first->min_bytes.minus(leaf.reserved);
  }
  const Bytes reserve = with_room ? ledger_.reservable(leaf.tenant, device_) : kUnlimited;
  const auto reserves = first_within(leaf.reservations, std::min(room, reserve));
  if (reserves && (!first || reserves->request < first->request)) {
    candidate.request = reserves->request;
    candidate.needed = reserves->min_bytes;
    candidate.is_joint = false;
  }
  candidate.overdue = candidate && candidate.request <= last_overdue_;
  return candidate;
}

// A request for several devices that has no room on one of them is passed on all.
std::optional<DeviceOrder::First> DeviceOrder::first_joint_of(const Node& leaf, bool with_room) const {
  if (!with_room || leaf.joint_queue.empty()) return first_within(leaf.joint_queue, kUnlimited);
  JointQueue::Amounts most;
  most.fill(kUnlimited);
  for (DeviceIndex device = 0; device < ledger_.device_count(); ++device) {
    const Bytes reserved = ledger_.reserved(leaf.tenant, device);
    if (const auto key = key_of(device))
      most[*key] = ledger_.room(leaf.tenant, device).plus(reserved).value_or(kUnlimited);
  }
  auto first = leaf.joint_queue.first_at_most(most);
  while (first && !has_room(requests_.at(first->request)))
    first = leaf.joint_queue.first_at_most(most, first->request);
  return first ? std::optional(First{first->request, first->min_bytes.front()}) : std::nullopt;
}

// Entitles the first request for this device alone, and the first for several devices if it arrived earlier.
void DeviceOrder::set_claims_of_leaf(Node& leaf) {
  std::optional<First> single;
  std::optional<First> joint;
  if (!leaf.empty()) {
    const Bytes accepts = ledger_.unmet(leaf.tenant, device_) + leaf.reserved;
    single = first_within(leaf.queue, accepts);
    joint = first_within(leaf.joint_queue, accepts);
  }
  set_claims(leaf, single, joint);
}

void DeviceOrder::set_claims(Node& node, const std::optional<First>& single,
                             const std::optional<First>& joint) {
  const bool joint_first = joint && (!single || joint->request < single->request);
  set_claim(node.claim, single ? single->request : RequestId{});
  set_claim(node.joint_claim, joint_first ? joint->request : RequestId{});
}

// The order of the parts is that of an inner node's children. For the guarantee, the limit and the reach, the
// parts are one leaf: the oldest request of them all that the guarantee covers is a claim. No later request
// passes an overdue request that only the room of the whole holds back.
Candidate DeviceOrder::candidate_of_whole(Node& whole) {
  set_claims_of_whole(whole);
  if (whole.children.empty()) return {};
  Candidate candidate = nodes_.at(whole.children.begin()->tenant).candidate;
  for (const TenantId id : whole.parts) {
    const RequestId full = nodes_.at(id).full;
    if (!full || full > last_overdue_ || candidate.request < full) continue;
    if (is_for_whole(full)) return {};
  }
  candidate.is_claim |= candidate.request == whole.claim || candidate.request == whole.joint_claim;
  return candidate;
}

// A request of a part waits for room of the whole alone.
bool DeviceOrder::is_for_whole(RequestId full) const {
  const Request& request = requests_.at(full);
  return std::ranges::all_of(request.parts, [&](const Request::Part& part) {
    const Bytes limit = ledger_.quota(request.tenant, part.device).limit;
    return needed_of(ledger_, request, part.device) <= limit.minus(ledger_.used(request.tenant, part.device));
  });
}

void DeviceOrder::set_claims_of_whole(Node& whole) {
  std::optional<First> single;
  std::optional<First> joint;
  const auto take = [](std::optional<First>& first, const std::optional<First>& other) {
    if (other && (!first || other->request < first->request)) first = other;
  };
  const Bytes unmet = ledger_.unmet(whole.tenant, device_);
  for (const TenantId id : whole.parts) {
    const Node& part = nodes_.at(id);
    const Bytes most = std::min(unmet, ledger_.room(id, device_));
    // One that needs nothing is a claim by its part's own.
    take(single, first_within(part.queue, most + part.reserved, part.reserved));
    take(joint, first_within(part.joint_queue, most + part.reserved, part.reserved));
  }
  set_claims(whole, single, joint);
}

// The first request that accepts at most `most` of this device, and not `more_than` or less.
template <class AnyQueue>
std::optional<DeviceOrder::First> DeviceOrder::first_within(const AnyQueue& queue, Bytes most,
                                                            Bytes more_than) {
  typename AnyQueue::Amounts accepts;
  accepts.fill(kUnlimited);
  accepts.front() = most;
  auto first = queue.first_at_most(accepts);
  while (first && first->min_bytes.front() <= more_than) first = queue.first_at_most(accepts, first->request);
  return first ? std::optional(First{first->request, first->min_bytes.front()}) : std::nullopt;
}

Candidate DeviceOrder::candidate_of_inner(Node& node) {
  Candidate candidate = nodes_.at(node.children.begin()->tenant).candidate;
  if (!node.tenant) return candidate;  // the top has no limit and no guarantee
  const bool is_full = !ledger_.excess_at(node.tenant, candidate.tenant, device_, candidate.needed).is_zero();
  if (is_full) held_back_[node.tenant] = candidate.request;
  if (is_full || is_over_limit_elsewhere(node.tenant, candidate)) candidate = {};
  const bool claims = candidate && !candidate.is_claim &&
                      candidate.needed <= ledger_.claimable(candidate.tenant, device_, node.tenant) &&
                      !requests_.at(candidate.request).is_reservation();
  set_claim(node.claim, claims ? candidate.request : RequestId{});
  candidate.is_claim |= claims;
  return candidate;
}

// Over the node's limit on another device. Only memory from below the node helps it there, so it holds up
// nobody outside.
bool DeviceOrder::is_over_limit_elsewhere(TenantId node, const Candidate& candidate) const {
  if (!candidate.is_joint) return false;
  const Request& request = requests_.at(candidate.request);
  return std::ranges::any_of(request.parts, [&](const Request::Part& part) {
    const Bytes needed = needed_of(ledger_, request, part.device);
    return !ledger_.excess_at(node, candidate.tenant, part.device, needed).is_zero();
  });
}

void DeviceOrder::set_claim(RequestId& own, RequestId claim) {
  if (own == claim) return;
  if (own) claims_.disentitle(own, device_);
  own = claim;
  if (claim) claims_.entitle(claim, device_);
}

std::optional<DeviceOrder::Rank> DeviceOrder::rank_of(const Node& node) const {
  const Candidate& candidate = node.candidate;
  if (!candidate) return std::nullopt;
  if (candidate.overdue) return Rank{.request = candidate.request, .tenant = node.tenant};
  const Quota& quota = ledger_.quota(node.tenant, device_);
  return Rank{.level = 1 + kMaxPriority - quota.priority,
              .share = quota.share_of(ledger_.burst(node.tenant, device_) + candidate.needed),
              .request = candidate.request,
              .tenant = node.tenant};
}

void DeviceOrder::rank(Node& node, TenantId parent) {
  const std::optional<Rank> rank = rank_of(node);
  if (rank == node.rank) return;
  std::set<Rank>& siblings = find_or_add(parent).children;
  if (node.rank) siblings.erase(*node.rank);
  if (rank) siblings.insert(*rank);
  node.rank = rank;
}

}  // namespace gpumem::core
