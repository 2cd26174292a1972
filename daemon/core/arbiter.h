#pragma once
#include <deque>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "daemon/core/ledger.h"
#include "daemon/core/line.h"
#include "daemon/core/request.h"

namespace gpumem::core {

/// A set of requests that knows how many of them came before another, in logarithmic time.
using OrderStatistics =
    __gnu_pbds::tree<RequestId, __gnu_pbds::null_type, std::less<>, __gnu_pbds::rb_tree_tag,
                     __gnu_pbds::tree_order_statistics_node_update>;

/// Decides who is granted what, when: docs/arbiter.md has the rules. It keeps, for every node of the tenants'
/// tree with requests below it, the children in the order in which they go; a change of one tenant's charge
/// or line brings the nodes on its way to the top up to date, nothing else: every event takes logarithmic
/// time.
class Arbiter {
 public:
  /// `granularity`  of each device: what is granted beyond the least is a multiple of it.
  Arbiter(Ledger& ledger, std::vector<Bytes> granularities, Duration aging);

  /// `request`  with a larger id than all before.
  void add(Request request);
  /// Grants, and charges, all that can be granted now.
  std::vector<Granted> admit();
  /// Takes a request from its lines; nothing, if it does not wait.
  std::optional<Request> remove(RequestId id);
  std::vector<Request> remove_all_of(SessionId session);
  /// Takes every request whose deadline has come.
  std::vector<Request> remove_expired(TimePoint now);
  /// What has waited long is not overtaken any more.
  void age(TimePoint now);
  /// The tree or many quotas have changed: everything is put in order anew.
  void rebuild();
  void set_aging(Duration aging, TimePoint now);

  std::optional<TimePoint> next_deadline() const;
  const Request* find(RequestId id) const;
  /// Whether the request waits by right: within guarantees on every device that it asks for.
  bool is_claim(RequestId id, DeviceIndex device) const { return claims_[device].contains(id); }
  /// The claims that wait on a device, in the order they came, with their least, and the sum of that.
  const std::map<RequestId, Bytes>& claims(DeviceIndex device) const { return claims_[device]; }
  Bytes claimed(DeviceIndex device) const { return claimed_[device]; }
  /// What other claims than this request wait for, where the device lends idle guarantees.
  Bytes spoken_for(RequestId id, DeviceIndex device) const;
  /// The request that is next, claims apart; it does not fit at present.
  std::optional<RequestId> next(DeviceIndex device) const;

  /// Another number than before: the line or the order of the device has changed.
  std::uint64_t revision(DeviceIndex device) const { return revisions_[device]; }
  /// Tenants whose own limit holds back whoever would be first below them, and that request.
  const std::map<TenantId, RequestId>& held_back(DeviceIndex device) const { return held_back_[device]; }

  std::size_t waiting() const { return waiting_.size(); }
  std::size_t waiting(DeviceIndex device) const { return by_device_[device].size(); }
  std::size_t waiting(DeviceIndex device, TenantId tenant) const;
  Bytes waiting_bytes(SliceId slice) const;
  std::size_t waiting_of(SessionId session) const;
  /// Requests in the device's line that came before.
  std::size_t waiting_before(RequestId id, DeviceIndex device) const;
  std::vector<RequestId> requests_of(SessionId session) const;

 private:
  struct Waiter {
    Request request;
    bool overdue = false;
  };
  // Who is next below a node.
  struct Candidate {
    RequestId request;
    TenantId tenant;
    Bytes least;
    bool overdue = false;
    bool is_claim = false;  ///< counted as one at the node or below
  };
  // Where a node stands among its siblings.
  struct Place {
    bool overdue = false;
    std::uint32_t priority = 0;
    double share = 0;  ///< after the grant of its candidate
    RequestId request;
    TenantId node;
    bool operator==(const Place&) const = default;
    bool operator<(const Place& other) const {
      if (overdue != other.overdue) return overdue;
      if (overdue) return request < other.request;
      if (priority != other.priority) return priority > other.priority;
      return share != other.share ? share < other.share : request < other.request;
    }
  };
  // A node with requests below it, on one device. A leaf has a line, an inner node an order of its children.
  struct Spot {
    Line line;
    std::set<Place> order;
    std::optional<Candidate> candidate;
    std::optional<Place> place;  ///< in the parent's order
    RequestId claim;             ///< the node's own
    RequestId joint_claim;  ///< of a leaf: a request for several devices, which may be one on all of them
    bool empty() const { return line.empty() && order.empty(); }
  };
  using Spots = std::unordered_map<TenantId, Spot>;

  std::optional<Candidate> first(DeviceIndex device) const;
  Request take_out(RequestId id);
  void refresh(TenantId tenant, DeviceIndex device);
  void renew(Spot& spot, TenantId node, DeviceIndex device);
  std::optional<Candidate> candidate_of_leaf(Spot& spot, TenantId leaf, DeviceIndex device);
  std::optional<Candidate> candidate_of_inner(Spot& spot, TenantId node, DeviceIndex device);
  void set_claims_of_leaf(Spot& spot, TenantId leaf, DeviceIndex device);
  void set_claim(RequestId& own, DeviceIndex device, RequestId claim);
  bool is_joint(RequestId id) const { return waiting_.at(id).request.parts.size() > 1; }
  void add_claim(RequestId id);
  void remove_claim(RequestId id);
  void place_in(TenantId parent, Spot& spot, TenantId node, DeviceIndex device);
  void take_changes();

  bool grant_one(DeviceIndex device, std::vector<Granted>& granted);
  bool fits(const Request& request) const;
  bool overtakes(RequestId id, DeviceIndex device) const;
  Granted grant(RequestId id);
  Ledger& ledger_;
  std::vector<Bytes> granularities_;
  Duration aging_;
  std::unordered_map<RequestId, Waiter> waiting_;
  std::vector<Spots> spots_;  ///< by device
  std::vector<std::unordered_map<RequestId, int>>
      rightful_;  ///< on the device alone; how many nodes count it as theirs
  std::vector<std::map<RequestId, Bytes>> claims_;
  std::vector<Bytes> claimed_;              ///< by device: the sum of claims_
  std::vector<OrderStatistics> by_device_;  ///< all that wait, in the order they came
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::deque<std::pair<TimePoint, RequestId>> young_;  ///< not overdue, and some that left; by age
  std::unordered_map<SessionId, std::unordered_set<RequestId>> by_session_;
  std::unordered_map<SliceId, Bytes> by_slice_;
  std::vector<std::map<TenantId, RequestId>> held_back_;  ///< by device
  std::vector<std::uint64_t> revisions_;                  ///< by device
  std::vector<bool> changed_;                 ///< by device: something may be possible that was not
  std::vector<std::uint64_t> promises_seen_;  ///< by device: the ledger's revision
  std::size_t joint_ = 0;                     ///< requests for several devices
};

}  // namespace gpumem::core
