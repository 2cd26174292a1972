#include "daemon/core/device_order.h"

#include <algorithm>
#include <utility>

namespace gpumem::core {

DeviceOrder::DeviceOrder(const Ledger& ledger, DeviceIndex device, Claims& claims,
                         const RequestId& last_overdue)
    : ledger_(ledger), device_(device), claims_(claims), last_overdue_(last_overdue) {
  clear();
}

void DeviceOrder::clear() {
  nodes_.clear();
  nodes_.emplace_back();
  vacant_.clear();
  by_tenant_.assign(1, 0);
  ranks_ = {};
  held_back_.clear();
  full_.clear();
}

void DeviceOrder::add(const Request& request) {
  Node& leaf = nodes_[find_or_add(request.tenant)];
  const Bytes least = request.part_on(device_).least;
  if (request.parts.size() == 1) return leaf.queue.add(request.id, least);
  if (!leaf.joint_queue) leaf.joint_queue = std::make_unique<RequestQueue>();
  leaf.joint_queue->add(request.id, least);
}

void DeviceOrder::remove(TenantId tenant, RequestId id, bool is_joint) {
  Node& leaf = nodes_[find(tenant)];
  if (!is_joint) return leaf.queue.remove(id);
  leaf.joint_queue->remove(id);
  if (leaf.joint_queue->empty()) leaf.joint_queue.reset();
}

std::size_t DeviceOrder::waiting(TenantId tenant) const {
  const Index index = find(tenant);
  if (index == kNone) return 0;
  const Node& node = nodes_[index];
  return node.queue.size() + (node.joint_queue ? node.joint_queue->size() : 0);
}

std::size_t DeviceOrder::waiting_below(TenantId tenant) const {
  if (!ledger_.has_members(tenant)) return waiting(tenant);
  std::size_t sum = 0;
  for (const Node& node : nodes_) {
    TenantId above = node.tenant;
    while (above && above != tenant) above = ledger_.parent(above);
    if (above) sum += waiting(node.tenant);
  }
  return sum;
}

// ---- Nodes ----

DeviceOrder::Index DeviceOrder::find(TenantId tenant) const {
  const std::size_t slot = Ledger::slot(tenant);
  return slot < by_tenant_.size() ? by_tenant_[slot] : kNone;
}

DeviceOrder::Index DeviceOrder::find_or_add(TenantId tenant) {
  const std::size_t slot = Ledger::slot(tenant);
  if (slot >= by_tenant_.size()) by_tenant_.resize(slot + 1, kNone);
  Index& index = by_tenant_[slot];
  if (index != kNone) return index;
  if (vacant_.empty()) {
    index = static_cast<Index>(nodes_.size());
    nodes_.emplace_back();
  } else {
    index = vacant_.back();
    vacant_.pop_back();
  }
  nodes_[index].tenant = tenant;
  return index;
}

void DeviceOrder::drop(Index index) {
  by_tenant_[Ledger::slot(nodes_[index].tenant)] = kNone;
  nodes_[index] = {};
  vacant_.push_back(index);
}

// ---- The order ----

// A change of a tenant's queue or charge reaches the nodes on its way to the top, and no others.
void DeviceOrder::refresh(TenantId tenant) {
  ++revision_;
  for (TenantId at = tenant;;) {
    const Index index = find(at);
    if (index != kNone) renew(nodes_[index]);
    if (!at) return;
    at = ledger_.parent(at);
    if (index == kNone) continue;  // the nodes above may be held back by a limit that has room now
    rank(index, at);
    if (nodes_[index].empty()) drop(index);
  }
}

void DeviceOrder::refresh_all() {
  std::vector<TenantId> leaves;
  for (const Node& node : nodes_) {
    if (!node.queue.empty() || node.joint_queue) leaves.push_back(node.tenant);
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
  Candidate candidate = first_of(leaf, RequestQueue::kMost);
  if (candidate.least > room) {
    leaf.full = candidate.request;
    full_[leaf.full] = leaf.tenant;
    candidate = candidate.overdue ? Candidate{} : first_of(leaf, room);
  }
  candidate.is_claim =
      candidate && (candidate.request == leaf.claim || candidate.request == leaf.joint_claim);
  return candidate;
}

// Of both queues, the first that is content with so much.
Candidate DeviceOrder::first_of(const Node& leaf, Bytes most) const {
  auto first = leaf.queue.first_at_most(most);
  const auto joint = leaf.joint_queue ? leaf.joint_queue->first_at_most(most) : std::nullopt;
  const bool is_joint = joint && (!first || joint->request < first->request);
  if (is_joint) first = joint;
  if (!first) return {};
  return {.request = first->request,
          .tenant = leaf.tenant,
          .least = first->least,
          .overdue = first->request <= last_overdue_,
          .is_claim = false,
          .is_joint = is_joint};
}

// The first for this device alone; and the first for several, if that came before.
void DeviceOrder::set_claims_of_leaf(Node& leaf) {
  std::optional<RequestQueue::Entry> single;
  std::optional<RequestQueue::Entry> joint;
  if (const Bytes unmet = leaf.empty() ? Bytes{} : ledger_.unmet(leaf.tenant, device_); !unmet.is_zero()) {
    single = leaf.queue.first_at_most(unmet);
    if (leaf.joint_queue) joint = leaf.joint_queue->first_at_most(unmet);
    if (single && joint && single->request < joint->request) joint.reset();
  }
  set_claim(leaf.claim, single ? single->request : RequestId{});
  set_claim(leaf.joint_claim, joint ? joint->request : RequestId{});
}

Candidate DeviceOrder::candidate_of_inner(Node& node) {
  Candidate candidate = nodes_[node.children.top().item].candidate;
  if (!node.tenant) return candidate;  // the top has no limit and no guarantee
  if (!ledger_.excess_at(node.tenant, candidate.tenant, device_, candidate.least).is_zero()) {
    held_back_[node.tenant] = candidate.request;
    candidate = {};
  }
  const bool claims = candidate && !candidate.is_claim &&
                      candidate.least <= ledger_.claimable(candidate.tenant, device_, node.tenant);
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

void DeviceOrder::rank(Index index, TenantId parent) {
  const Node& node = nodes_[index];
  const std::uint32_t position = ranks_[index];
  if (!node.candidate) {
    if (position != kNone) nodes_[find(parent)].children.remove(position, ranks_);
    return;
  }
  const Quota& quota = ledger_.quota(node.tenant, device_);
  Rank rank{.level = 0, .item = index, .share = 0, .request = node.candidate.request};
  if (!node.candidate.overdue) {
    rank.level = 1 + kMaxPriority - quota.priority;
    rank.share = quota.share_of(ledger_.burst(node.tenant, device_) + node.candidate.least);
  }
  auto& children = nodes_[find_or_add(parent)].children;
  if (position == kNone)
    children.add(rank, ranks_);
  else if (children.at(position) != rank)
    children.change(position, rank, ranks_);
}

}  // namespace gpumem::core
