#include "tests/model/books.h"

#include <algorithm>
#include <limits>

namespace gpumem::core::model {

Books::Books(std::vector<Device> all) : devices(std::move(all)) {
  constexpr Quota kNone{{}, {std::numeric_limits<Number>::max()}};
  add(std::vector<Quota>(devices.size(), kNone));
}

NodeIndex Books::add(std::vector<Quota> quotas, NodeIndex parent) {
  const std::vector<Number> nothing(devices.size(), 0);
  nodes.push_back({parent, std::move(quotas), nothing, nothing, nothing});
  return nodes.size() - 1;
}

std::vector<NodeIndex> Books::children(NodeIndex node) const {
  std::vector<NodeIndex> found;
  for (NodeIndex one = kTop + 1; one < nodes.size(); ++one) {
    if (!nodes[one].gone && nodes[one].parent == node) found.push_back(one);
  }
  return found;
}

std::vector<NodeIndex> Books::way_up(NodeIndex node) const {
  std::vector<NodeIndex> way{node};
  while (way.back() != kTop) way.push_back(nodes[way.back()].parent);
  return way;
}

Number Books::leased(DeviceIndex device) const {
  Number sum = 0;
  for (NodeIndex node = 0; node < nodes.size(); ++node)
    sum += nodes[node].leases[device] + reserved(node, device);
  return sum;
}

Number Books::reserved(NodeIndex leaf, DeviceIndex device) const {
  return std::max<Number>(0, nodes[leaf].reservations[device] - nodes[leaf].leases[device]);
}

bool Books::has_parts(NodeIndex node) const {
  return std::ranges::any_of(children(node), [this](NodeIndex child) { return nodes[child].is_part; });
}

Number Books::free(DeviceIndex device) const {
  return devices[device].pool - devices[device].missing - leased(device);
}

Accounts::Accounts(const Books& books, DeviceIndex device)
    : books_(books), device_(device), accounts_(books.nodes.size()) {
  count(Books::kTop);
}

void Accounts::count(NodeIndex node) {
  Account& own = accounts_[node];
  own.leases = books_.nodes[node].leases[device_] + books_.reserved(node, device_);
  own.outside = books_.nodes[node].outside[device_];
  for (const NodeIndex child : books_.children(node)) {
    count(child);
    const Account& below = accounts_[child];
    own.leases += below.leases;
    const Number room = std::max<Number>(0, limit(child) - below.leases);
    own.outside += books_.nodes[child].is_part ? below.outside : std::min(below.outside, room);
    own.promised += accounts_[child].promised;
    own.members_kept += accounts_[child].kept;
    own.members_pool_kept += accounts_[child].pool_kept;
  }
  own.used = own.leases + own.outside;
  own.promised = std::max(own.promised, guarantee(node));
  own.kept = std::max({guarantee(node) - own.used, own.members_kept, Number{0}});
  own.pool_kept = std::max({guarantee(node) - own.leases, own.members_pool_kept, Number{0}});
  own.burst = own.used + own.kept - own.promised;
}

Number Accounts::guarantee(NodeIndex node) const {
  return number(books_.nodes[node].quotas[device_].guarantee);
}

Number Accounts::limit(NodeIndex node) const { return number(books_.nodes[node].quotas[device_].limit); }

Number Accounts::claimable(NodeIndex leaf, NodeIndex last) const {
  Number sum = 0;
  for (const NodeIndex node : books_.way_up(leaf)) {
    sum += std::max<Number>(0, guarantee(node) - of(node).used - of(node).members_kept);
    if (node == last) break;
  }
  return sum;
}

bool Accounts::may_borrow(NodeIndex leaf) const {
  return books_.devices[device_].lends && !books_.nodes[leaf].barred.contains(device_);
}

Number Accounts::reach(NodeIndex leaf) const {
  Number reach = books_.devices[device_].pool;
  if (may_borrow(leaf)) return reach;
  for (const NodeIndex node : books_.way_up(leaf)) {
    if (node == Books::kTop) break;
    for (const NodeIndex sibling : books_.children(books_.nodes[node].parent)) {
      if (sibling != node) reach -= of(sibling).promised;
    }
  }
  return reach;
}

Number Accounts::room(NodeIndex leaf) const {
  const Number own = std::min(limit(leaf) - of(leaf).used, reach(leaf) - of(leaf).leases);
  return books_.nodes[leaf].is_part ? std::min(own, room(books_.nodes[leaf].parent)) : own;
}

// What is declared leaves room for claims, as far as the limit has it.
Number Accounts::firm(NodeIndex node) const {
  const Account& own = of(node);
  return own.leases + std::min(own.outside, std::max<Number>(0, limit(node) - own.leases - own.kept));
}

Number Accounts::excess_at(NodeIndex node, NodeIndex leaf, Number bytes) const {
  if (bytes == 0) return 0;
  const Number beyond = bytes - std::min(bytes, claimable(leaf, node));
  const Number over = bytes + firm(node) - limit(node);
  return beyond == 0 ? over : std::max(over, beyond + of(node).used + of(node).kept - limit(node));
}

bool Accounts::over_limit(NodeIndex leaf, Number bytes) const {
  const auto way = books_.way_up(leaf);
  return std::ranges::any_of(way, [&](NodeIndex node) { return over_limit_at(node, leaf, bytes); });
}

bool Accounts::fits(NodeIndex leaf, Number bytes, Number spoken_for) const {
  const Number free = books_.free(device_);
  if (over_limit(leaf, bytes) || bytes > free) return false;
  const Number beyond = bytes - std::min(bytes, claimable(leaf));
  if (beyond == 0) return true;
  const Account& all = of(Books::kTop);
  if (!books_.devices[device_].lends) return beyond <= free - all.kept;
  return bytes <= free - spoken_for &&
         (may_borrow(leaf) || beyond <= free - std::max(all.kept, all.pool_kept));
}

Number Accounts::available(NodeIndex leaf) const {
  Number most = 0;
  Number too_much = books_.devices[device_].pool + 1;
  while (most + 1 < too_much) {
    const Number middle = most + (too_much - most) / 2;
    (fits(leaf, middle, 0) ? most : too_much) = middle;
  }
  return most;
}

Number ceiling(Books books, NodeIndex leaf, DeviceIndex device) {
  books.devices[device].missing = 0;
  for (Books::Node& node : books.nodes) {
    node.leases[device] = node.outside[device] = node.reservations[device] = 0;
    node.barred.erase(device);
  }
  return Accounts(books, device).available(leaf);
}

}  // namespace gpumem::core::model
