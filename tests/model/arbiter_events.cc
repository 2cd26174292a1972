#include <algorithm>
#include <array>

#include "tests/model/arbiter_world.h"

// What may happen to an arbiter.

namespace gpumem::core::model {

void ArbiterWorld::step() {
  struct Choice {
    const char* name;
    void (ArbiterWorld::*event)();
    std::uint64_t weight;
    bool disturbs = false;
  };
  static constexpr std::array kChoices{
      Choice{"ask", &ArbiterWorld::ask, 50},
      Choice{"release", &ArbiterWorld::release, 35},
      Choice{"move", &ArbiterWorld::move, 3},
      Choice{"withdraw", &ArbiterWorld::withdraw, 4},
      Choice{"end session", &ArbiterWorld::end_session, 1},
      Choice{"pass time", &ArbiterWorld::pass_time, 12},
      Choice{"change aging", &ArbiterWorld::change_aging, 1, true},
      Choice{"change quotas", &ArbiterWorld::change_quotas, 3, true},
      Choice{"change tree", &ArbiterWorld::change_tree, 1, true},
      Choice{"add leaf", &ArbiterWorld::add_leaf, 1, true},
      Choice{"remove leaf", &ArbiterWorld::remove_leaf, 1, true},
      Choice{"declare", &ArbiterWorld::declare, 4, true},
      Choice{"lose memory", &ArbiterWorld::lose_memory, 3, true},
      Choice{"change lending", &ArbiterWorld::change_lending, 1, true},
  };
  std::uint64_t sum = 0;
  for (const Choice& choice : kChoices) sum += choice.weight;
  std::uint64_t pick = below(sum);
  const auto* choice = kChoices.begin();
  for (; pick >= choice->weight; ++choice) pick -= choice->weight;
  if (choice->disturbs && !shape_.disturbed) return step();
  event_ = choice->name;
  (this->*choice->event)();
  compare();
}

Request::Parts ArbiterWorld::some_parts(NodeIndex leaf) {
  Request::Parts parts;
  const bool joint = shape_.devices > 1 && one_in(4);
  const DeviceIndex only = below(shape_.devices);
  const bool partial = one_in(3);
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    if (!joint && device != only) continue;
    const auto pieces = static_cast<std::uint64_t>(books_.devices[device].pool / kPiece);
    const std::uint64_t wanted = 1 + below(one_in(4) ? pieces : 1 + pieces / 6);
    const std::uint64_t least = partial ? 1 + below(wanted) : wanted;
    parts.push_back({SliceId{leaf}, device, {wanted * kPiece}, {least * kPiece}});
  }
  return parts;
}

void ArbiterWorld::ask() {
  if (queue_.size() >= shape_.most_waiting) return withdraw();
  const auto all = leaves();
  if (all.empty()) return;
  const NodeIndex leaf = some(all);
  now_ += Duration(below(3));
  const Duration wait{1 + below(300)};
  const Request request{
      request_ids_.next(), SessionId{1 + below(4)}, tenants_[leaf], some_parts(leaf), now_, wait,
      now_ + wait};
  queue_.push_back({leaf, request});
  arbiter_.add(request);
  for (const Request::Part& part : request.parts) {
    trace("request ", request.id.value, " of ", leaf, " on ", part.device, ": ", part.min_bytes.count, " to ",
          part.bytes.count);
  }
}

void ArbiterWorld::release() {
  if (held_.empty()) return;
  Held& one = some(held_);
  const auto pieces = static_cast<std::uint64_t>(one.bytes / kPiece);
  const Number bytes = one_in(3) ? kPiece * static_cast<Number>(1 + below(pieces)) : one.bytes;
  trace("release ", bytes, " of ", one.leaf, " on ", one.device);
  books_.nodes[one.leaf].leases[one.device] -= bytes;
  ledger_.release(tenants_[one.leaf], one.device, {static_cast<std::uint64_t>(bytes)}, one.state);
  one.bytes -= bytes;
  std::erase_if(held_, [](const Held& held) { return held.bytes == 0; });
}

void ArbiterWorld::move() {
  if (held_.empty()) return;
  Held& one = some(held_);
  const auto next = static_cast<Charge>(below(kCharges));
  ledger_.move(tenants_[one.leaf], one.device, {static_cast<std::uint64_t>(one.bytes)}, one.state, next);
  one.state = next;
}

void ArbiterWorld::withdraw() {
  if (queue_.empty()) return;
  const RequestId id = some(queue_).request.id;
  trace("request ", id.value);
  auto removed = arbiter_.remove(id);
  require(removed.has_value(), "a request that waits is not found");
  require(!arbiter_.remove(id).has_value(), "a request that was withdrawn still waits");
  if (!removed) return;
  compare_removed({*removed}, [&](const Waiting& one) { return one.request.id == id; });
}

void ArbiterWorld::end_session() {
  const SessionId session{1 + below(4)};
  trace("session ", session.value);
  compare_removed(arbiter_.remove_all_of(session),
                  [&](const Waiting& one) { return one.request.session == session; });
}

void ArbiterWorld::pass_time() {
  now_ += Duration(below(30));
  trace("to ", now_.time_since_epoch().count());
  compare_removed(arbiter_.remove_expired(now_),
                  [&](const Waiting& one) { return one.request.deadline <= now_; });
  if (one_in(4)) return;
  aged_ = now_;
  arbiter_.age(now_);
}

void ArbiterWorld::change_aging() {
  aging_ = Duration(1 + below(150));
  trace("to ", aging_.count());
  aged_ = now_;
  arbiter_.set_aging(aging_, now_);
}

void ArbiterWorld::change_quotas() {
  if (one_in(2)) {
    put_in_force(some_quotas());
    return arbiter_.rebuild();
  }
  std::vector<Quotas> quotas;
  for (const Books::Node& node : books_.nodes) quotas.push_back(node.quotas);
  const NodeIndex node = 1 + below(books_.nodes.size() - 1);
  quotas[node][0] = some_quota(node, 0);
  Books after = books_;
  after.nodes[node].quotas = quotas[node];
  if (may_hold(after)) put_in_force(quotas);
}

void ArbiterWorld::change_tree() {
  const NodeIndex node = 1 + below(books_.nodes.size() - 1);
  const NodeIndex parent = below(books_.nodes.size());
  const auto way = books_.way_up(parent);
  if (books_.nodes[node].gone || is_leaf_[parent] || std::ranges::find(way, node) != way.end()) return;
  Books after = books_;
  after.nodes[node].parent = parent;
  if (way.size() > shape_.depth || !may_hold(after)) return;
  trace("node ", node, " below ", parent);
  books_ = after;
  ledger_.set_parent(tenants_[node], tenants_[parent]);
  arbiter_.rebuild();
}

void ArbiterWorld::add_leaf() {
  if (leaves().size() >= 12 || books_.nodes.size() >= 30) return;
  const NodeIndex parent = below(books_.nodes.size());
  if (is_leaf_[parent] || books_.nodes[parent].gone) return;
  Books after = books_;
  const NodeIndex node = after.add(Quotas(shape_.devices), parent);
  const auto like = leaves();
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    after.nodes[node].quotas[device] = some_quota(some(like), device);
  }
  if (may_hold(after)) add_node(after.nodes[node].quotas, parent, true);
}

bool ArbiterWorld::waits_or_holds(NodeIndex leaf) const {
  if (std::ranges::find(held_, leaf, &Held::leaf) != held_.end()) return true;
  if (std::ranges::find(queue_, leaf, &Waiting::leaf) != queue_.end()) return true;
  return std::ranges::any_of(books_.nodes[leaf].outside, [](Number bytes) { return bytes != 0; });
}

void ArbiterWorld::remove_leaf() {
  const auto all = leaves();
  if (all.size() < 3) return;  // never the last: there is always somebody to ask
  const NodeIndex leaf = some(all);
  if (waits_or_holds(leaf)) return;
  trace("node ", leaf);
  books_.nodes[leaf].gone = true;
  ledger_.remove_tenant(tenants_[leaf]);
}

void ArbiterWorld::declare() {
  const auto all = leaves();
  if (all.empty()) return;
  const NodeIndex leaf = some(all);
  const DeviceIndex device = below(shape_.devices);
  Number& outside = books_.nodes[leaf].outside[device];
  const Number after =
      one_in(2) ? 0 : static_cast<Number>(below(static_cast<std::uint64_t>(books_.devices[device].pool / 3)));
  trace("outside of ", leaf, " on ", device, " from ", outside, " to ", after);
  if (after > outside) {
    ledger_.charge_outside(tenants_[leaf], device, {static_cast<std::uint64_t>(after - outside)});
  } else if (after < outside) {
    ledger_.release_outside(tenants_[leaf], device, {static_cast<std::uint64_t>(outside - after)});
  }
  outside = after;
}

void ArbiterWorld::lose_memory() {
  const DeviceIndex device = below(shape_.devices);
  const Number most = books_.devices[device].pool - books_.leased(device);
  const std::uint64_t missing = one_in(2) ? 0 : below(static_cast<std::uint64_t>(most) + 1);
  trace("missing on ", device, ": ", missing);
  books_.devices[device].missing = static_cast<Number>(missing);
  ledger_.set_missing(device, {missing});
}

void ArbiterWorld::change_lending() {
  const DeviceIndex device = below(shape_.devices);
  books_.devices[device].lends = !books_.devices[device].lends;
  trace("lending on ", device, ": ", books_.devices[device].lends);
  ledger_.set_lending(device, books_.devices[device].lends);
}

}  // namespace gpumem::core::model
