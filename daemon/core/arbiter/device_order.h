#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "daemon/core/arbiter/request_queue.h"
#include "daemon/core/arbiter/waiting_requests.h"
#include "daemon/core/ledger/ledger.h"

namespace gpumem::core {

/// The next request below a node of the tenants' tree.
struct Candidate {
  RequestId request;
  TenantId tenant;
  Bytes needed;
  bool overdue = false;
  bool is_claim = false;  ///< counted as a claim at the node or below
  bool is_joint = false;  ///< for several devices
  explicit operator bool() const { return static_cast<bool>(request); }
};

/// The order of the requests for one device (docs/arbiter.md). Every node of the tenants' tree with requests
/// below it has its children in order. A change of a tenant's charge or queue updates only the nodes on the
/// way to the top. A request counts with what it needs (needed_of), so one that needs nothing is a claim of
/// nothing. A request to reserve is no claim.
class DeviceOrder {
 public:
  /// `last_overdue`  requests up to this one are overdue. All outlive this.
  DeviceOrder(const Ledger& ledger, DeviceIndex device, WaitingRequests& requests, Claims& claims,
              const RequestId& last_overdue);

  /// These take effect with the next refresh().
  void add(const Request& request);
  void remove(const Request& request);
  void clear();

  /// The tenant's queue or charge has changed.
  void refresh(TenantId tenant);
  /// The queue or charge of every tenant may have changed.
  void refresh_all();

  const Candidate& first() const { return nodes_.begin()->second.candidate; }
  std::size_t waiting(TenantId tenant) const;
  /// The requests of the tenant and of all tenants below it.
  std::size_t waiting_below(TenantId tenant) const;
  /// Requests for several devices wait, so what is charged on the others concerns this order, too.
  bool has_joint() const { return joint_ != 0; }
  /// Tenants whose own limit holds back the first request below them, with that request.
  const std::map<TenantId, RequestId>& held_back() const { return held_back_; }
  /// The first requests of leaves that have no room for them here (Ledger::room), the oldest first.
  const std::map<RequestId, TenantId>& full() const { return full_; }
  /// Changes whenever the order changes, or a charge that it depends on.
  std::uint64_t revision() const { return revision_; }

 private:
  // The position of a node among its siblings.
  struct Rank {
    std::uint32_t level = 0;  ///< 0: overdue; else smaller for a higher priority
    double share = 0;         ///< after the grant of the candidate; 0 if overdue
    RequestId request;
    TenantId tenant;
    bool operator==(const Rank&) const = default;
    bool operator<(const Rank& other) const {
      if (level != other.level) return level < other.level;
      return share != other.share ? share < other.share : request < other.request;
    }
  };
  using Queue = RequestQueue<1>;
  // Requests for several devices, by what they accept on this device and on kKeys - 1 others. The amounts are
  // zero where they ask for nothing.
  static constexpr std::size_t kKeys = 4;
  using JointQueue = RequestQueue<kKeys>;
  struct First {
    RequestId request;
    Bytes min_bytes;
  };
  // A leaf has queues, an inner node an order of its children.
  struct Node {
    TenantId tenant;
    Queue queue;  ///< for this device alone
    JointQueue joint_queue;
    Queue reservations;  ///< of a part: to reserve memory of this device
    Candidate candidate;
    std::optional<Rank> rank;  ///< among the children of the parent; none: it has no candidate
    RequestId claim;           ///< the request that the node entitles (Claims::entitle)
    RequestId joint_claim;     ///< of a leaf or a whole: the same, of requests for several devices
    RequestId full;            ///< of a leaf: the first request, if it has no room on one of its devices
    Bytes reserved;            ///< of a leaf: the part of its reservation that is not used
    std::set<Rank> children;
    std::set<TenantId> parts;  ///< with requests, whether they have a candidate or not
    bool is_idle() const { return queue.empty() && joint_queue.empty() && reservations.empty(); }
    bool empty() const { return is_idle() && children.empty() && parts.empty(); }
  };

  Node* find(TenantId tenant);
  Node& find_or_add(TenantId tenant);
  void refresh_way_up(TenantId tenant);
  void renew(Node& node);
  void renew_claims(const Node& leaf);
  Candidate candidate_of_leaf(Node& leaf);
  Candidate first_of(const Node& leaf, bool with_room) const;
  std::optional<First> first_joint_of(const Node& leaf, bool with_room) const;
  std::optional<std::size_t> key_of(DeviceIndex device) const;
  bool has_room(const Request& request) const;
  bool has_room(const Candidate& candidate) const;
  bool is_for_whole(RequestId full) const;
  bool exceeds_reserve(const Candidate& candidate) const;
  Candidate candidate_of_inner(Node& node);
  bool is_over_limit_elsewhere(TenantId node, const Candidate& candidate) const;
  Candidate candidate_of_whole(Node& whole);
  void set_claims_of_leaf(Node& leaf);
  void set_claims_of_whole(Node& whole);
  void set_claims(Node& node, const std::optional<First>& single, const std::optional<First>& joint);
  template <class AnyQueue>
  static std::optional<First> first_within(const AnyQueue& queue, Bytes most, Bytes more_than = {});
  void set_claim(RequestId& own, RequestId claim);
  std::optional<Rank> rank_of(const Node& node) const;
  void rank(Node& node, TenantId parent);

  const Ledger& ledger_;
  DeviceIndex device_;
  WaitingRequests& requests_;
  Claims& claims_;
  const RequestId& last_overdue_;
  std::map<TenantId, Node> nodes_;  ///< the top comes first and is always there
  /// The last node that left: it was empty, and the next request mostly needs one.
  std::map<TenantId, Node>::node_type spare_;
  std::map<TenantId, RequestId> held_back_;
  std::map<RequestId, TenantId> full_;
  std::size_t joint_ = 0;  ///< requests for several devices
  std::uint64_t revision_ = 0;
};

}  // namespace gpumem::core
