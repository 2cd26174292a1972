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
      Choice{"add job", &ArbiterWorld::add_job, 1},
      Choice{"reserve", &ArbiterWorld::reserve, 5},
      Choice{"give up", &ArbiterWorld::give_up, 2},
      Choice{"pass on", &ArbiterWorld::pass_on, 2},
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
  const auto next = static_cast<Charge>(below(kCharges - 1));  // not reserved
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
  compare_removed(arbiter_.remove_expired(now_, kMostInARow * kMostInARow),
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
  if (books_.nodes[node].is_part || books_.has_parts(parent)) return;
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
  if (is_leaf_[parent] || books_.nodes[parent].gone || books_.has_parts(parent)) return;
  Books after = books_;
  const NodeIndex node = after.add(Quotas(shape_.devices), parent);
  const auto like = leaves();
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    const NodeIndex one = some(like);
    after.nodes[node].quotas[device] =
        some_quota(books_.nodes[one].is_part ? books_.nodes[one].parent : one, device);
  }
  if (may_hold(after)) add_node(after.nodes[node].quotas, parent, true);
}

bool ArbiterWorld::waits_or_holds(NodeIndex leaf) const {
  if (std::ranges::find(held_, leaf, &Held::leaf) != held_.end()) return true;
  if (std::ranges::find(queue_, leaf, &Waiting::leaf) != queue_.end()) return true;
  const auto has_some = [](Number bytes) { return bytes != 0; };
  return std::ranges::any_of(books_.nodes[leaf].outside, has_some) ||
         std::ranges::any_of(books_.nodes[leaf].reservations, has_some);
}

void ArbiterWorld::remove_leaf() {
  const auto all = leaves();
  if (all.size() < 3) return;  // never the last: there is always somebody to ask
  const NodeIndex leaf = some(all);
  if (waits_or_holds(leaf)) return;
  trace("node ", leaf);
  books_.nodes[leaf].gone = true;
  ledger_.remove_tenant(tenants_[leaf]);
  const NodeIndex whole = books_.nodes[leaf].parent;
  if (books_.nodes[leaf].is_part && books_.children(whole).empty()) is_leaf_[whole] = true;
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

// ---- Jobs ----

void ArbiterWorld::add_job() {
  const auto all = leaves();
  if (all.empty() || books_.nodes.size() >= 30) return;
  const NodeIndex leaf = some(all);
  const bool is_part = books_.nodes[leaf].is_part;
  if (!is_part && std::ranges::find(queue_, leaf, &Waiting::leaf) != queue_.end()) return;
  if (!is_part) divide(leaf);
  const NodeIndex whole = is_part ? books_.nodes[leaf].parent : leaf;
  const NodeIndex job = add_part(Quotas(shape_.devices, {{}, kNoLimit}), whole);
  Quotas quotas;
  for (DeviceIndex device = 0; device < shape_.devices; ++device) quotas.push_back(some_quota(job, device));
  books_.nodes[job].quotas = quotas;
  ledger_.set_quotas(tenants_[job], quotas);
}

void ArbiterWorld::reserve() {
  std::vector<NodeIndex> parts = leaves();
  std::erase_if(parts, [this](NodeIndex leaf) { return !books_.nodes[leaf].is_part; });
  if (parts.empty() || queue_.size() >= shape_.most_waiting) return;
  const NodeIndex leaf = some(parts);
  const DeviceIndex device = below(shape_.devices);
  const auto pieces = static_cast<std::uint64_t>(books_.devices[device].pool / kPiece);
  const Bytes bytes{(1 + below(1 + pieces / 4)) * kPiece};
  const Duration wait{1 + below(300)};
  Request request{request_ids_.next(),
                  SessionId{1 + below(4)},
                  tenants_[leaf],
                  {{SliceId{}, device, bytes, bytes}},
                  now_,
                  wait,
                  now_ + wait};
  request.kind = Request::Kind::kReservation;
  trace("request ", request.id.value, " of ", leaf, " on ", device, ": ", bytes.count);
  queue_.push_back({leaf, request});
  arbiter_.add(request);
}

// Gives up a part of an unused reservation, or the whole.
void ArbiterWorld::give_up() {
  const auto all = leaves();
  if (all.empty()) return;
  const NodeIndex leaf = some(all);
  const DeviceIndex device = below(shape_.devices);
  Number& reservation = books_.nodes[leaf].reservations[device];
  if (one_in(3)) {
    trace("no reservation of ", leaf, " on ", device);
    reservation = 0;
    return ledger_.end_reservation(tenants_[leaf], device);
  }
  const std::uint64_t bytes = below(static_cast<std::uint64_t>(books_.reserved(leaf, device)) + 1);
  trace(bytes, " less reserved of ", leaf, " on ", device);
  reservation -= static_cast<Number>(bytes);
  ledger_.give_up_reserved(tenants_[leaf], device, {bytes});
}

// Memory comes to another part, since it is used there. It is reserved no longer.
void ArbiterWorld::pass_on() {
  if (held_.empty()) return;
  Held& one = some(held_);
  if (!books_.nodes[one.leaf].is_part) return;
  auto parts = books_.children(books_.nodes[one.leaf].parent);
  const NodeIndex to = some(parts);
  if (to == one.leaf) return;
  trace(one.bytes, " of ", one.leaf, " to ", to, " on ", one.device);
  const Number reserved = books_.reserved(one.leaf, one.device);
  Books::Node& from = books_.nodes[one.leaf];
  from.leases[one.device] -= one.bytes;
  from.reservations[one.device] -= books_.reserved(one.leaf, one.device) - reserved;
  books_.nodes[to].leases[one.device] += one.bytes;
  Charges charges;
  charges[one.state] = {static_cast<std::uint64_t>(one.bytes)};
  ledger_.transfer(tenants_[one.leaf], tenants_[to], one.device, charges, {});
  one.leaf = to;
}

}  // namespace gpumem::core::model
