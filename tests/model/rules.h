#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "daemon/core/words/request.h"
#include "tests/model/books.h"

namespace gpumem::core::model {

/// A request that waits for a leaf.
struct Waiting {
  NodeIndex leaf = Books::kTop;
  Request request;
  bool overdue = false;

  const Request::Part* part_on(DeviceIndex device) const;
};

/// What docs/arbiter.md says of one moment, by its definitions: who may be granted, and who goes first.
/// Requests are named by their place in the queue, which is the order in which they came.
class Moment {
 public:
  using Place = std::size_t;

  /// Both outlive this.
  Moment(const Books& books, const std::vector<Waiting>& queue);

  /// In the order they came. A request for several devices is one only if every part is.
  const std::vector<Place>& claims(DeviceIndex device) const { return devices_[device].claims; }
  bool is_claim(Place place, DeviceIndex device) const;
  /// The first in the order of the tree, claims apart.
  std::optional<Place> first(DeviceIndex device) const { return devices_[device].candidates[Books::kTop]; }
  const Accounts& accounts(DeviceIndex device) const { return devices_[device].accounts; }
  /// The one whose turn it is among what waits on the node and below it.
  std::optional<Place> candidate(NodeIndex node, DeviceIndex device) const {
    return devices_[device].candidates[node];
  }
  /// The one whose turn it would be, but for the node's own limit. The node has others below it.
  std::optional<Place> held_back(NodeIndex node, DeviceIndex device) const {
    return devices_[device].held_back[node];
  }

  /// What it needs at least, besides what its leaf has reserved.
  Number least(Place place, DeviceIndex device) const;
  /// Every part with its least.
  bool fits(Place place) const;
  /// The one to be granted next on the device.
  std::optional<Place> granted(DeviceIndex device) const;
  /// How much it is granted, part by part.
  std::vector<Number> amounts(Place place) const;

 private:
  struct OnDevice {
    Accounts accounts;
    std::vector<std::optional<Place>> candidates;  ///< by node
    std::vector<std::optional<Place>> held_back;   ///< by node
    std::vector<Place> claims;
  };

  /// Whether `holds` on each device that the request asks for.
  template <class Holds>
  bool on_all_devices(Place place, const Holds& holds) const {
    const auto& parts = queue_[place].request.parts;
    return std::ranges::all_of(parts, [&](const Request::Part& part) { return holds(part.device); });
  }
  bool has_room(Place place) const;
  bool fits(Place place, DeviceIndex device, Number bytes) const;
  bool waits_alone(Place place, DeviceIndex device) const;
  bool passes_an_overdue_one(Place place, DeviceIndex device) const;
  void find_candidates(DeviceIndex device, NodeIndex node);
  std::optional<Place> candidate_of_leaf(DeviceIndex device, NodeIndex leaf) const;
  std::optional<Place> candidate_of_group(DeviceIndex device, NodeIndex node);
  bool goes_before(DeviceIndex device, NodeIndex one, NodeIndex other) const;
  double share_after_grant(DeviceIndex device, NodeIndex node) const;
  void find_claims();
  bool is_claim_of(NodeIndex node, Place place, DeviceIndex device) const;
  bool is_rightful(Place place, DeviceIndex device) const;
  bool is_blocked(DeviceIndex device, NodeIndex whole, Place place) const;
  std::optional<Place> claim_of(NodeIndex node, DeviceIndex device, bool joint) const;

  const Books& books_;
  const std::vector<Waiting>& queue_;
  std::vector<OnDevice> devices_;
};

struct Decision {
  Request request;
  NodeIndex leaf = Books::kTop;
  std::vector<Number> bytes;  ///< of each part
  std::vector<Number> more;   ///< of those, what was not reserved before
};

/// Charges to the books, and takes from the queue, all that can be granted, in the order in which it is.
std::vector<Decision> admit(Books& books, std::vector<Waiting>& queue);

}  // namespace gpumem::core::model
