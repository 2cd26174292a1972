#include "tests/model/arbiter_world.h"

#include <algorithm>

namespace gpumem::core::model {
namespace {

ArbiterShape some_shape(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ArbiterShape shape;
  shape.devices = 1 + random() % 3;
  shape.depth = 1 + random() % 4;
  shape.leaves = 3 + random() % 8;
  shape.most_waiting = 3 + random() % 8;
  shape.pool = static_cast<Number>(4 + random() % 60);
  shape.guarantees = random() % 4 != 0;
  shape.lends = random() % 3 == 0;
  shape.disturbed = random() % 3 != 0;
  return shape;
}

std::vector<Bytes> on_each(const ArbiterShape& shape, Number bytes) {
  return std::vector<Bytes>(shape.devices, {static_cast<std::uint64_t>(bytes)});
}

std::string list(std::vector<RequestId> ids) {
  std::string all;
  for (const RequestId id : ids) all += " " + std::to_string(id.value);
  return all;
}

std::string text(const Decision& one) {
  std::string all = std::to_string(one.request.id.value) + ":";
  for (const Number bytes : one.bytes) all += " " + std::to_string(bytes);
  return all;
}
std::string text(const Granted& one) {
  std::string all = std::to_string(one.request.id.value) + ":";
  for (const Bytes bytes : one.bytes) all += " " + std::to_string(bytes.count);
  return all;
}

template <class All>
std::string texts(const All& all) {
  std::string sum;
  for (const auto& one : all) sum += "[" + text(one) + "]";
  return sum;
}

}  // namespace

ArbiterWorld::ArbiterWorld(std::uint64_t seed)
    : shape_(some_shape(seed)),
      random_(seed),
      books_(std::vector<Books::Device>(shape_.devices, {shape_.pool * kPiece, kPiece, 0, shape_.lends})),
      ledger_(on_each(shape_, shape_.pool * kPiece)),
      arbiter_(ledger_, on_each(shape_, kPiece), aging_) {
  tenants_.emplace_back();
  is_leaf_.push_back(false);
  for (DeviceIndex device = 0; device < shape_.devices; ++device) ledger_.set_lending(device, shape_.lends);
  trace("devices ", shape_.devices, " pool ", shape_.pool * kPiece, " lending ", shape_.lends);
  grow_tree();
  compare();
}

void ArbiterWorld::finish() {
  event_ = "finish";
  while (!queue_.empty() && fault_.empty()) withdraw();
  while (!held_.empty() && fault_.empty()) {
    release();
    compare();
  }
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    for (const NodeIndex leaf : leaves()) {
      Number& outside = books_.nodes[leaf].outside[device];
      ledger_.release_outside(tenants_[leaf], device, {static_cast<std::uint64_t>(outside)});
      outside = 0;
      ledger_.end_reservation(tenants_[leaf], device);
      books_.nodes[leaf].reservations[device] = 0;
    }
    require(ledger_.charges(device).total().is_zero() && ledger_.outside(device).is_zero(),
            "charges are left");
  }
  compare();
}

void ArbiterWorld::compare() {
  for (Waiting& one : queue_) one.overdue = one.request.asked + aging_ <= aged_;
  compare_grants();
  require(arbiter_.waiting() == queue_.size(), "the number of requests that wait");
  for (const Waiting& one : queue_) {
    require(arbiter_.find(one.request.id) != nullptr, "a request does not wait any more");
    require(arbiter_.next_deadline() <= one.request.deadline, "a deadline would be missed");
  }
  const Moment moment(books_, queue_);
  for (DeviceIndex device = 0; device < shape_.devices; ++device) {
    compare_device(moment, device);
    check_properties(moment, device);
  }
  seen_.waits += queue_.empty() ? 0 : 1;
  seen_.overdue += std::ranges::any_of(queue_, &Waiting::overdue) ? 1 : 0;
}

void ArbiterWorld::compare_grants() {
  const auto found = arbiter_.admit();
  const auto expected = admit(books_, queue_);
  require(texts(found) == texts(expected), "granted" + texts(found) + ", not" + texts(expected));
  for (const Decision& one : expected) {
    trace("granted ", text(one));
    note_grant(one);
  }
}

// No limit is passed by a grant, nor the pool.
void ArbiterWorld::note_grant(const Decision& one) {
  ++seen_.grants;
  seen_.joint += one.bytes.size() > 1 ? 1 : 0;
  for (std::size_t i = 0; i < one.bytes.size(); ++i) {
    const Request::Part& part = one.request.parts[i];
    seen_.partial += one.bytes[i] > number(part.min_bytes) && one.bytes[i] < number(part.bytes) ? 1 : 0;
    seen_.covered += one.more[i] < one.bytes[i] && !one.request.is_reservation() ? 1 : 0;
    if (!one.request.is_reservation())
      held_.push_back({one.leaf, part.device, one.bytes[i], Charge::kOffered});
    require(books_.free(part.device) >= 0, "more is lent than there is");
    if (one.more[i] == 0) continue;
    const Accounts accounts(books_, part.device);
    for (const NodeIndex node : books_.way_up(one.leaf)) {
      require(accounts.of(node).leases <= accounts.limit(node), "a limit was passed by a grant");
    }
  }
}

void ArbiterWorld::check_properties(const Moment& moment, DeviceIndex device) {
  require(!moment.granted(device), "a request waits that could be granted");
  const Accounts& accounts = moment.accounts(device);
  seen_.claims += moment.claims(device).empty() ? 0 : 1;
  const bool whole = !books_.devices[device].lends && books_.free(device) >= accounts.of(Books::kTop).kept;
  for (const Moment::Place claim : moment.claims(device)) {
    const Waiting& one = queue_[claim];
    if (!whole || one.request.parts.size() > 1) continue;
    require(accounts.over_limit(one.leaf, moment.least(claim, device)), "a claim waits");
  }
}

void ArbiterWorld::compare_removed(std::vector<Request> removed,
                                   const std::function<bool(const Waiting&)>& is_removed) {
  std::vector<RequestId> expected;
  for (const Waiting& one : queue_) {
    if (is_removed(one)) expected.push_back(one.request.id);
  }
  std::erase_if(queue_, is_removed);
  std::vector<RequestId> found;
  for (const Request& one : removed) found.push_back(one.id);
  std::ranges::sort(found);
  require(found == expected, "taken out: expected" + list(expected) + ", found" + list(found));
}

void ArbiterWorld::same(const char* what, Number expected, Bytes found) {
  require(expected == number(found), std::string(what) + ": expected " + std::to_string(expected) +
                                         ", found " + std::to_string(found.count));
}

void ArbiterWorld::compare_device(const Moment& moment, DeviceIndex device) {
  const Accounts& accounts = moment.accounts(device);
  same("free", std::max<Number>(0, books_.free(device)), ledger_.free(device));
  same("kept", accounts.of(Books::kTop).kept, ledger_.kept(device));
  same("promised", accounts.of(Books::kTop).promised, ledger_.promised(device));
  same("leases", books_.leased(device), ledger_.charges(device).total());
  std::vector<RequestId> claims;
  Number claimed = 0;
  for (const Moment::Place place : moment.claims(device)) {
    claims.push_back(queue_[place].request.id);
    claimed += moment.least(place, device);
  }
  std::vector<RequestId> found;
  for (const auto& [id, least] : arbiter_.claims(device)) found.push_back(id);
  require(claims == found, "claims: expected" + list(claims) + ", found" + list(found));
  same("claimed", claimed, arbiter_.claimed(device));
  for (NodeIndex node = 1; node < books_.nodes.size(); ++node) {
    if (!books_.nodes[node].gone) compare_node(accounts, node, device);
  }
}

void ArbiterWorld::compare_node(const Accounts& accounts, NodeIndex node, DeviceIndex device) {
  const TenantId tenant = tenants_[node];
  const Accounts::Account& account = accounts.of(node);
  same("used", account.used, ledger_.used(tenant, device));
  same("promised to a tenant", account.promised, ledger_.promised(tenant, device));
  same("burst", account.burst, ledger_.burst(tenant, device));
  const Number debt = std::max<Number>(0, account.used - accounts.limit(node));
  same("debt", debt, ledger_.debt(tenant, device));
  seen_.debts += debt != 0 ? 1 : 0;
  if (!is_leaf_[node]) return;
  same("reserved", books_.reserved(node, device), ledger_.reserved(tenant, device));
  same("unmet", std::max<Number>(0, accounts.guarantee(node) - account.used), ledger_.unmet(tenant, device));
  same("claimable", accounts.claimable(node), ledger_.claimable(tenant, device));
  same("room", std::max<Number>(0, accounts.room(node)), ledger_.room(tenant, device));
  if (one_in(20)) same("available", accounts.available(node), ledger_.available(tenant, device));
  if (one_in(100)) same("ceiling", ceiling(books_, node, device), ledger_.ceiling(tenant, device));
}

void ArbiterWorld::Seen::add(const Seen& other) {
  grants += other.grants;
  claims += other.claims;
  waits += other.waits;
  partial += other.partial;
  joint += other.joint;
  overdue += other.overdue;
  debts += other.debts;
  covered += other.covered;
}

}  // namespace gpumem::core::model
