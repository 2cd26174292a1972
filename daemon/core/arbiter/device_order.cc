#include "daemon/core/arbiter/device_order.h"

#include <limits>
#include <utility>
#include <vector>

namespace gpumem::core {
namespace {

constexpr Bytes kUnlimited{std::numeric_limits<std::uint64_t>::max()};

}  // namespace

DeviceOrder::DeviceOrder(const Ledger& ledger, DeviceIndex device, Claims& claims,
                         const RequestId& last_overdue)
    : ledger_(ledger), device_(device), claims_(claims), last_overdue_(last_overdue) {
  clear();
}

void DeviceOrder::clear() {
  nodes_.clear();
  find_or_add({});
  held_back_.clear();
  full_.clear();
}

void DeviceOrder::add(const Request& request) {
  Node& leaf = find_or_add(request.tenant);
  Queue& queue = request.parts.size() == 1 ? leaf.queue : leaf.joint_queue;
  queue.add(request.id, {request.part_on(device_).min_bytes});
}

void DeviceOrder::remove(TenantId tenant, RequestId id, bool is_joint) {
  Node& leaf = *find(tenant);
  (is_joint ? leaf.joint_queue : leaf.queue).remove(id);
}

std::size_t DeviceOrder::waiting(TenantId tenant) const {
  const auto found = nodes_.find(tenant);
  return found == nodes_.end() ? 0 : found->second.queue.size() + found->second.joint_queue.size();
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
  Node& node = nodes_[tenant];
  node.tenant = tenant;
  return node;
}

// ---- The order ----

// A change of a tenant's queue or charge affects only the nodes on the way to the top.
void DeviceOrder::refresh(TenantId tenant) {
  ++revision_;
  for (TenantId at = tenant;;) {
    Node* node = find(at);
    if (node != nullptr) renew(*node);
    if (!at) return;
    at = ledger_.parent(at);
    if (node == nullptr) continue;  // the nodes above may be held back by a limit that has room now
    rank(*node, at);
    if (node->empty()) nodes_.erase(node->tenant);
  }
}

void DeviceOrder::refresh_all() {
  std::vector<TenantId> leaves;
  for (const auto& [id, node] : nodes_) {
    if (!node.is_idle()) leaves.push_back(id);
  }
  for (const TenantId leaf : leaves) refresh(leaf);
}

void DeviceOrder::renew(Node& node) {
  if (!held_back_.empty()) held_back_.erase(node.tenant);
  if (node.full) full_.erase(std::exchange(node.full, {}));
  node.candidate = node.children.empty() ? candidate_of_leaf(node) : candidate_of_inner(node);
}

Candidate DeviceOrder::candidate_of_leaf(Node& leaf) {
  set_claims_of_leaf(leaf);
  if (leaf.empty()) return {};
  const Bytes room = ledger_.room(leaf.tenant, device_);
  Candidate candidate = first_of(leaf, kUnlimited);
  if (candidate.min_bytes > room) {
    leaf.full = candidate.request;
    full_[leaf.full] = leaf.tenant;
    candidate = candidate.overdue ? Candidate{} : first_of(leaf, room);
  }
  candidate.is_claim =
      candidate && (candidate.request == leaf.claim || candidate.request == leaf.joint_claim);
  return candidate;
}

// The first request of both queues that accepts at most `most`.
Candidate DeviceOrder::first_of(const Node& leaf, Bytes most) const {
  auto first = leaf.queue.first_at_most({most});
  const auto joint = leaf.joint_queue.first_at_most({most});
  const bool is_joint = joint && (!first || joint->request < first->request);
  if (is_joint) first = joint;
  if (!first) return {};
  return {.request = first->request,
          .tenant = leaf.tenant,
          .min_bytes = first->min_bytes.front(),
          .overdue = first->request <= last_overdue_,
          .is_claim = false,
          .is_joint = is_joint};
}

// Entitles the first request for this device alone, and the first for several devices if it arrived earlier.
void DeviceOrder::set_claims_of_leaf(Node& leaf) {
  std::optional<Queue::Entry> single;
  std::optional<Queue::Entry> joint;
  if (const Bytes unmet = leaf.empty() ? Bytes{} : ledger_.unmet(leaf.tenant, device_); !unmet.is_zero()) {
    single = leaf.queue.first_at_most({unmet});
    joint = leaf.joint_queue.first_at_most({unmet});
    if (single && joint && single->request < joint->request) joint.reset();
  }
  set_claim(leaf.claim, single ? single->request : RequestId{});
  set_claim(leaf.joint_claim, joint ? joint->request : RequestId{});
}

Candidate DeviceOrder::candidate_of_inner(Node& node) {
  Candidate candidate = nodes_.at(node.children.begin()->tenant).candidate;
  if (!node.tenant) return candidate;  // the top has no limit and no guarantee
  if (!ledger_.excess_at(node.tenant, candidate.tenant, device_, candidate.min_bytes).is_zero()) {
    held_back_[node.tenant] = candidate.request;
    candidate = {};
  }
  const bool claims = candidate && !candidate.is_claim &&
                      candidate.min_bytes <= ledger_.claimable(candidate.tenant, device_, node.tenant);
  set_claim(node.claim, claims ? candidate.request : RequestId{});
  candidate.is_claim |= claims;
  return candidate;
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
              .share = quota.share_of(ledger_.burst(node.tenant, device_) + candidate.min_bytes),
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
