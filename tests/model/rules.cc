#include "tests/model/rules.h"

#include <algorithm>

namespace gpumem::core::model {

const Request::Part* Waiting::part_on(DeviceIndex device) const {
  const auto found = std::ranges::find(request.parts, device, &Request::Part::device);
  return found == request.parts.end() ? nullptr : &*found;
}

Moment::Moment(const Books& books, const std::vector<Waiting>& queue) : books_(books), queue_(queue) {
  for (DeviceIndex device = 0; device < books.devices.size(); ++device)
    devices_.push_back({Accounts(books, device), {}, {}, {}});
  for (DeviceIndex device = 0; device < books.devices.size(); ++device) {
    devices_[device].candidates.resize(books.nodes.size());
    devices_[device].held_back.resize(books.nodes.size());
    find_candidates(device, Books::kTop);
  }
  find_claims();
}

Number Moment::least(Place place, DeviceIndex device) const {
  const Number bytes = number(queue_[place].part_on(device)->min_bytes);
  const bool reserves = queue_[place].request.is_reservation();
  return reserves ? bytes : std::max<Number>(0, bytes - books_.reserved(queue_[place].leaf, device));
}

// ---- Who goes first ----

void Moment::find_candidates(DeviceIndex device, NodeIndex node) {
  for (const NodeIndex child : books_.children(node)) find_candidates(device, child);
  auto found = candidate_of_leaf(device, node);
  if (!found) found = candidate_of_group(device, node);
  if (found && books_.has_parts(node) && is_blocked(device, node, *found)) found.reset();
  devices_[device].candidates[node] = found;
}

bool Moment::has_room(Place place) const {
  return on_all_devices(place, [&](DeviceIndex one) {
    return least(place, one) <= std::max<Number>(0, accounts(one).room(queue_[place].leaf));
  });
}

// The first that the leaf's own room allows, on all its devices; but the oldest, once it is overdue, lets
// nobody pass.
std::optional<Moment::Place> Moment::candidate_of_leaf(DeviceIndex device, NodeIndex leaf) const {
  for (Place place = 0; place < queue_.size(); ++place) {
    if (queue_[place].leaf != leaf || queue_[place].part_on(device) == nullptr) continue;
    if (has_room(place)) return place;
    if (queue_[place].overdue) return std::nullopt;
  }
  return std::nullopt;
}

// The first child's; none, if it is over the node's limit on any of its devices.
std::optional<Moment::Place> Moment::candidate_of_group(DeviceIndex device, NodeIndex node) {
  std::optional<NodeIndex> first;
  for (const NodeIndex child : books_.children(node)) {
    if (candidate(child, device) && (!first || goes_before(device, child, *first))) first = child;
  }
  if (!first) return std::nullopt;
  const Place place = *candidate(*first, device);
  const auto is_within = [&](DeviceIndex one) {
    return !accounts(one).over_limit_at(node, queue_[place].leaf, least(place, one));
  };
  if (!is_within(device)) devices_[device].held_back[node] = place;
  return on_all_devices(place, is_within) ? std::optional(place) : std::nullopt;
}

// By the oldest request of a part, if it is overdue and only the whole has no room for it.
bool Moment::is_blocked(DeviceIndex device, NodeIndex whole, Place place) const {
  std::vector<NodeIndex> seen;
  for (Place before = 0; before < place; ++before) {
    const NodeIndex part = queue_[before].leaf;
    const bool is_there = queue_[before].part_on(device) != nullptr && books_.nodes[part].parent == whole;
    if (!is_there || std::ranges::count(seen, part) != 0) continue;
    seen.push_back(part);
    const bool has_own_room = on_all_devices(before, [&](DeviceIndex one) {
      const Number own_room = accounts(one).limit(part) - accounts(one).of(part).used;
      return least(before, one) <= std::max<Number>(0, own_room);
    });
    if (queue_[before].overdue && !has_room(before) && has_own_room) return true;
  }
  return false;
}

bool Moment::goes_before(DeviceIndex device, NodeIndex one, NodeIndex other) const {
  const Place mine = *candidate(one, device);
  const Place theirs = *candidate(other, device);
  if (queue_[mine].overdue != queue_[theirs].overdue) return queue_[mine].overdue;
  if (queue_[mine].overdue) return mine < theirs;
  const std::uint32_t priority = books_.nodes[one].quotas[device].priority;
  const std::uint32_t other_priority = books_.nodes[other].quotas[device].priority;
  if (priority != other_priority) return priority > other_priority;
  const double share = share_after_grant(device, one);
  const double other_share = share_after_grant(device, other);
  return share != other_share ? share < other_share : mine < theirs;
}

double Moment::share_after_grant(DeviceIndex device, NodeIndex node) const {
  const Number burst = accounts(device).of(node).burst + least(*candidate(node, device), device);
  return static_cast<double>(burst) / books_.nodes[node].quotas[device].weight;
}

// ---- Claims ----

// A leaf has two: the first for this device alone, and the first for several, if that came before. So have
// all parts of a whole together. A part has those of nothing.
std::optional<Moment::Place> Moment::claim_of(NodeIndex node, DeviceIndex device, bool joint) const {
  const Number unmet = std::max<Number>(0, accounts(device).guarantee(node) - accounts(device).of(node).used);
  for (Place place = 0; place < queue_.size(); ++place) {
    const NodeIndex leaf = queue_[place].leaf;
    const bool is_of_part = books_.nodes[leaf].is_part && books_.nodes[leaf].parent == node;
    if (queue_[place].part_on(device) == nullptr || !(leaf == node || is_of_part)) continue;
    const Number bytes = least(place, device);
    const bool is_joint = queue_[place].request.parts.size() > 1;
    if (bytes > unmet) continue;
    if (is_of_part &&
        (bytes == 0 || bytes > accounts(device).room(leaf) || queue_[place].request.is_reservation()))
      continue;
    if (is_joint == joint) return place;
    if (!is_joint) return std::nullopt;
  }
  return std::nullopt;
}

// The node's own claim: the leaf's, or its candidate, if what can be claimed from the leaf up to it allows.
// The top has no guarantee. Its candidate may be of one part where an older request of another part is the
// claim.
bool Moment::is_claim_of(NodeIndex node, Place place, DeviceIndex device) const {
  if (node == Books::kTop) return false;
  const NodeIndex leaf = queue_[place].leaf;
  if (node == leaf || books_.has_parts(node))
    return claim_of(node, device, queue_[place].request.parts.size() > 1) == place;
  return candidate(node, device) == place && !queue_[place].request.is_reservation() &&
         least(place, device) <= accounts(device).claimable(leaf, node);
}

bool Moment::is_rightful(Place place, DeviceIndex device) const {
  const auto way = books_.way_up(queue_[place].leaf);
  return std::ranges::any_of(way, [&](NodeIndex node) { return is_claim_of(node, place, device); });
}

void Moment::find_claims() {
  for (Place place = 0; place < queue_.size(); ++place) {
    const auto& parts = queue_[place].request.parts;
    if (!std::ranges::all_of(parts, [&](const auto& part) { return is_rightful(place, part.device); }))
      continue;
    for (const Request::Part& part : parts) devices_[part.device].claims.push_back(place);
  }
}

bool Moment::is_claim(Place place, DeviceIndex device) const {
  return std::ranges::find(claims(device), place) != claims(device).end();
}

// ---- May it be granted? ----

bool Moment::fits(Place place, DeviceIndex device, Number bytes) const {
  Number spoken_for = 0;
  for (const Place claim : claims(device)) spoken_for += claim == place ? 0 : least(claim, device);
  return accounts(device).fits(queue_[place].leaf, bytes, spoken_for);
}

bool Moment::fits(Place place) const {
  return on_all_devices(place, [&](DeviceIndex one) { return fits(place, one, least(place, one)); });
}

bool Moment::passes_an_overdue_one(Place place, DeviceIndex device) const {
  return std::ranges::any_of(queue_[place].request.parts, [&](const Request::Part& part) {
    const auto there = first(part.device);
    return part.device != device && there && *there < place && queue_[*there].overdue;
  });
}

std::optional<Moment::Place> Moment::granted(DeviceIndex device) const {
  for (const Place claim : claims(device)) {
    if (fits(claim)) return claim;
  }
  const auto next = first(device);
  if (!next || is_claim(*next, device) || !fits(*next) || passes_an_overdue_one(*next, device))
    return std::nullopt;
  return next;
}

bool Moment::waits_alone(Place place, DeviceIndex device) const {
  for (Place other = 0; other < queue_.size(); ++other) {
    if (other != place && queue_[other].part_on(device) != nullptr) return false;
  }
  return true;
}

std::vector<Number> Moment::amounts(Place place) const {
  std::vector<Number> all;
  for (const Request::Part& part : queue_[place].request.parts) {
    Number bytes = number(part.min_bytes);
    const Number step = books_.devices[part.device].granularity;
    const Number reserved = books_.reserved(queue_[place].leaf, part.device);
    const bool alone = waits_alone(place, part.device);
    const auto may_have = [&](Number most) {
      return most <= reserved || (alone && fits(place, part.device, most - reserved));
    };
    while (bytes + step <= number(part.bytes) && may_have(bytes + step)) bytes += step;
    all.push_back(bytes);
  }
  return all;
}

std::vector<Decision> admit(Books& books, std::vector<Waiting>& queue) {
  std::vector<Decision> all;
  for (bool more = true; more;) {
    more = false;
    for (DeviceIndex device = 0; device < books.devices.size(); ++device) {
      for (;;) {
        const Moment moment(books, queue);
        const auto place = moment.granted(device);
        if (!place) break;
        Decision& one =
            all.emplace_back(Decision{queue[*place].request, queue[*place].leaf, moment.amounts(*place), {}});
        Books::Node& leaf = books.nodes[one.leaf];
        for (std::size_t i = 0; i < one.bytes.size(); ++i) {
          const DeviceIndex device = one.request.parts[i].device;
          const Number before = books.leased(device);
          (one.request.is_reservation() ? leaf.reservations : leaf.leases)[device] += one.bytes[i];
          one.more.push_back(books.leased(device) - before);
        }
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(*place));
        more = true;
      }
    }
  }
  return all;
}

}  // namespace gpumem::core::model
