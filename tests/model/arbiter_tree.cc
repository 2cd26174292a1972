#include <algorithm>
#include <array>

#include "tests/model/arbiter_world.h"

// Trees of tenants, and quotas that a policy could have.

namespace gpumem::core::model {
namespace {

constexpr std::array<std::uint32_t, 6> kWeights{1, 2, 3, 100, 100, kMaxWeight};

}  // namespace

NodeIndex ArbiterWorld::add_node(Quotas quotas, NodeIndex parent, bool is_leaf) {
  const NodeIndex node = books_.add(quotas, parent);
  tenants_.push_back(ledger_.add_tenant(std::move(quotas), tenants_[parent]));
  is_leaf_.push_back(is_leaf);
  trace("node ", node, " below ", parent, is_leaf ? "" : ", a group");
  return node;
}

NodeIndex ArbiterWorld::add_part(Quotas quotas, NodeIndex whole) {
  const NodeIndex node = books_.add(quotas, whole);
  books_.nodes[node].is_part = true;
  tenants_.push_back(ledger_.add_part(std::move(quotas), tenants_[whole]));
  is_leaf_.push_back(true);
  trace("part ", node, " of ", whole);
  return node;
}

// What the leaf has becomes a part's.
void ArbiterWorld::divide(NodeIndex leaf) {
  const NodeIndex rest = add_part(Quotas(shape_.devices, {{}, kNoLimit}), leaf);
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    const TenantId tenant = tenants_[leaf];
    ledger_.transfer(tenant, tenants_[rest], device, Charges(ledger_.charges(tenant, device)),
                     ledger_.outside(tenant, device));
    std::swap(books_.nodes[leaf].leases[device], books_.nodes[rest].leases[device]);
    std::swap(books_.nodes[leaf].outside[device], books_.nodes[rest].outside[device]);
  }
  for (Held& one : held_)
    if (one.leaf == leaf) one.leaf = rest;
  is_leaf_[leaf] = false;
}

// Groups first, each at a random place not too deep, then leaves among them; quotas once all are there.
void ArbiterWorld::grow_tree() {
  const Quotas nothing(shape_.devices);
  std::vector<NodeIndex> groups{Books::kTop};
  for (std::size_t i = 1; shape_.depth > 1 && i <= shape_.leaves / 2; ++i) {
    const NodeIndex parent = some(groups);
    if (books_.way_up(parent).size() < shape_.depth) groups.push_back(add_node(nothing, parent, false));
  }
  for (std::size_t i = 0; i < shape_.leaves; ++i) add_node(nothing, some(groups), true);
  put_in_force(some_quotas());
}

std::vector<NodeIndex> ArbiterWorld::leaves() const {
  std::vector<NodeIndex> all;
  for (NodeIndex node = 1; node < books_.nodes.size(); ++node) {
    if (is_leaf_[node] && !books_.nodes[node].gone) all.push_back(node);
  }
  return all;
}

Quota ArbiterWorld::some_quota(NodeIndex node, DeviceIndex device) {
  const Number pool = books_.devices[device].pool;
  const auto up_to = [&](Number most) {  // now and then not whole pieces
    const auto drawn = static_cast<Number>(below(static_cast<std::uint64_t>(most) + 1));
    return one_in(4) ? drawn : drawn / kPiece * kPiece;
  };
  if (books_.nodes[node].is_part)
    return {{}, one_in(3) ? kNoLimit : Bytes{static_cast<std::uint64_t>(up_to(pool))}};
  Number guarantee = 0;
  if (shape_.guarantees && one_in(2)) guarantee = up_to(2 * pool / static_cast<Number>(leaves().size() + 1));
  Number members = 0;
  const Accounts accounts(books_, device);
  for (const NodeIndex child : books_.children(node)) members += accounts.of(child).promised;
  const bool is_group = !is_leaf_[node] && !books_.has_parts(node);
  if (is_group && shape_.guarantees && one_in(3)) guarantee = up_to(members);
  const Number least = std::max(guarantee, members);
  const Number limit = least + (one_in(4) ? 0 : one_in(3) ? 2 * pool : up_to(pool));
  const auto priority = static_cast<std::uint32_t>(one_in(2) ? kDefaultPriority : below(kMaxPriority + 1));
  const std::uint32_t weight = one_in(5) ? 1 + static_cast<std::uint32_t>(below(kMaxWeight)) : some(kWeights);
  return {{static_cast<std::uint64_t>(guarantee)}, {static_cast<std::uint64_t>(limit)}, weight, priority};
}

// Drawn until they could be a policy's; the books have those of the moment again afterwards.
std::vector<Quotas> ArbiterWorld::some_quotas() {
  const Books before = books_;
  std::vector<Quotas> drawn;
  do {
    books_ = before;
    for (NodeIndex node = books_.nodes.size(); --node > Books::kTop;) {
      for (DeviceIndex device = 0; device < shape_.devices; ++device) {
        books_.nodes[node].quotas[device] = some_quota(node, device);
      }
    }
    drawn.clear();
    for (const Books::Node& node : books_.nodes) drawn.push_back(node.quotas);
  } while (!may_hold(books_));
  books_ = before;
  return drawn;
}

bool ArbiterWorld::may_hold(const Books& books) const {
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    const Accounts accounts(books, device);
    if (accounts.of(Books::kTop).promised > books.devices[device].pool) return false;
    for (NodeIndex node = 1; node < books.nodes.size(); ++node) {
      if (!books.nodes[node].gone && accounts.of(node).promised > accounts.limit(node)) return false;
    }
  }
  return true;
}

void ArbiterWorld::put_in_force(const std::vector<Quotas>& quotas) {
  for (NodeIndex node = 1; node < quotas.size(); ++node) {
    if (books_.nodes[node].gone || books_.nodes[node].quotas == quotas[node]) continue;
    books_.nodes[node].quotas = quotas[node];
    ledger_.set_quotas(tenants_[node], quotas[node]);
    for (const Quota& quota : quotas[node]) {
      trace("quota of ", node, ": guarantee ", quota.guarantee.count, " limit ", quota.limit.count,
            " weight ", quota.weight, " priority ", quota.priority);
    }
  }
}

}  // namespace gpumem::core::model
