#include "tests/model/rules.h"

#include <algorithm>

namespace gpumem::core::model {

const Request::Part* Waiting::part_on(DeviceIndex device) const {
  const auto found = std::ranges::find(request.parts, device, &Request::Part::device);
  return found == request.parts.end() ? nullptr : &*found;
}

Moment::Moment(const Books& books, const std::vector<Waiting>& queue) : books_(books), queue_(queue) {
  for (DeviceIndex device = 0; device < books.devices.size(); ++device) {
    devices_.push_back({Accounts(books, device), {}, {}, {}});
    devices_[device].candidates.resize(books.nodes.size());
    devices_[device].held_back.resize(books.nodes.size());
    find_candidates(device, Books::kTop);
  }
  find_claims();
}

// ---- Who goes first ----

void Moment::find_candidates(DeviceIndex device, NodeIndex node) {
  for (const NodeIndex child : books_.children(node)) find_candidates(device, child);
  auto found = candidate_of_leaf(device, node);
  if (!found) found = candidate_of_group(device, node);
  const bool over = found && accounts(device).over_limit_at(node, queue_[*found].leaf, least(*found, device));
  if (!over)
    devices_[device].candidates[node] = found;
  else if (!books_.children(node).empty())
    devices_[device].held_back[node] = found;
}

// The first that the leaf's own room allows; but the oldest, once it is overdue, lets nobody pass.
std::optional<Moment::Place> Moment::candidate_of_leaf(DeviceIndex device, NodeIndex leaf) const {
  const Number room = accounts(device).room(leaf);
  for (Place place = 0; place < queue_.size(); ++place) {
    if (queue_[place].leaf != leaf || queue_[place].part_on(device) == nullptr) continue;
    if (least(place, device) <= room) return place;
    if (queue_[place].overdue) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Moment::Place> Moment::candidate_of_group(DeviceIndex device, NodeIndex node) const {
  std::optional<NodeIndex> first;
  for (const NodeIndex child : books_.children(node)) {
    if (candidate(child, device) && (!first || goes_before(device, child, *first))) first = child;
  }
  return first ? candidate(*first, device) : std::nullopt;
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

// A leaf has two: the first for this device alone, and the first for several, if that came before.
std::optional<Moment::Place> Moment::claim_of_leaf(DeviceIndex device, NodeIndex leaf, bool joint) const {
  const Number unmet = accounts(device).guarantee(leaf) - accounts(device).of(leaf).used;
  for (Place place = 0; place < queue_.size(); ++place) {
    const bool is_its = queue_[place].leaf == leaf && queue_[place].part_on(device) != nullptr;
    const bool is_joint = queue_[place].request.parts.size() > 1;
    if (!is_its || least(place, device) > unmet) continue;
    if (is_joint == joint) return place;
    if (!is_joint) return std::nullopt;
  }
  return std::nullopt;
}

// The node's own claim: the leaf's, or its candidate, if what can be claimed from the leaf up to it allows.
bool Moment::is_claim_of(NodeIndex node, Place place, DeviceIndex device) const {
  const NodeIndex leaf = queue_[place].leaf;
  if (node == leaf) return claim_of_leaf(device, leaf, queue_[place].request.parts.size() > 1) == place;
  return candidate(node, device) == place && least(place, device) <= accounts(device).claimable(leaf, node);
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
  return std::ranges::all_of(queue_[place].request.parts, [&](const Request::Part& part) {
    return fits(place, part.device, number(part.min_bytes));
  });
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
    const bool alone = waits_alone(place, part.device);
    while (alone && bytes + step <= number(part.bytes) && fits(place, part.device, bytes + step))
      bytes += step;
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
        all.push_back({queue[*place].request, queue[*place].leaf, moment.amounts(*place)});
        for (std::size_t i = 0; i < all.back().bytes.size(); ++i) {
          books.nodes[all.back().leaf].leases[all.back().request.parts[i].device] += all.back().bytes[i];
        }
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(*place));
        more = true;
      }
    }
  }
  return all;
}

}  // namespace gpumem::core::model
