#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "daemon/core/claims.h"
#include "daemon/core/ledger.h"
#include "daemon/core/request_queue.h"

namespace gpumem::core {

/// Who is next below a node of the tenants' tree.
struct Candidate {
  RequestId request;
  TenantId tenant;
  Bytes least;
  bool overdue = false;
  bool is_claim = false;  ///< counted as one at the node or below
  bool is_joint = false;  ///< for several devices
  explicit operator bool() const { return static_cast<bool>(request); }
};

/// The order in which requests for one device go (docs/arbiter.md): for every node of the tenants' tree with
/// requests below it, the children in their order. A change of one tenant's charge or queue brings the nodes
/// on its way to the top up to date, nothing else.
class DeviceOrder {
 public:
  /// `last_overdue`  requests up to this one are overdue. All outlive this.
  DeviceOrder(const Ledger& ledger, DeviceIndex device, Claims& claims, const RequestId& last_overdue);

  /// Nothing follows from these before refresh().
  void add(const Request& request);
  void remove(TenantId tenant, RequestId id, bool is_joint);
  void clear();

  /// The tenant's queue or charge has changed.
  void refresh(TenantId tenant);
  /// Everybody's may have.
  void refresh_all();

  const Candidate& first() const { return nodes_.begin()->second.candidate; }
  std::size_t waiting(TenantId tenant) const;
  /// The same with the tenants below it.
  std::size_t waiting_below(TenantId tenant) const;
  /// Tenants whose own limit holds back whoever would be first below them, and that request.
  const std::map<TenantId, RequestId>& held_back() const { return held_back_; }
  /// The first requests of leaves that have no room for them (Ledger::room), the oldest first.
  const std::map<RequestId, TenantId>& full() const { return full_; }
  /// Another number than before: the order has changed, or a charge that it is made of.
  std::uint64_t revision() const { return revision_; }

 private:
  // The position of a node among its siblings.
  struct Rank {
    std::uint32_t level = 0;  ///< 0: overdue; else the higher the priority the smaller
    double share = 0;         ///< after the grant of its candidate; 0, if overdue
    RequestId request;
    TenantId tenant;
    bool operator==(const Rank&) const = default;
    bool operator<(const Rank& other) const {
      if (level != other.level) return level < other.level;
      return share != other.share ? share < other.share : request < other.request;
    }
  };
  using Queue = RequestQueue<1>;
  // A leaf has queues, an inner node an order of its children.
  struct Node {
    TenantId tenant;
    Queue queue;        ///< for this device alone
    Queue joint_queue;  ///< for several
    Candidate candidate;
    std::optional<Rank> rank;  ///< among the children of the parent; none: it has no candidate
    RequestId claim;           ///< the node's own
    RequestId joint_claim;     ///< of a leaf: a request for several devices, which may be one on all of them
    RequestId full;            ///< of a leaf: its place in full_
    std::set<Rank> children;
    bool is_idle() const { return queue.empty() && joint_queue.empty(); }
    bool empty() const { return is_idle() && children.empty(); }
  };

  Node* find(TenantId tenant);
  Node& find_or_add(TenantId tenant);
  void renew(Node& node);
  Candidate candidate_of_leaf(Node& leaf);
  Candidate first_of(const Node& leaf, Bytes most) const;
  Candidate candidate_of_inner(Node& node);
  void set_claims_of_leaf(Node& leaf);
  void set_claim(RequestId& own, RequestId claim);
  std::optional<Rank> rank_of(const Node& node) const;
  void rank(Node& node, TenantId parent);

  const Ledger& ledger_;
  DeviceIndex device_;
  Claims& claims_;
  const RequestId& last_overdue_;
  std::map<TenantId, Node> nodes_;  ///< the top comes first and is always there
  std::map<TenantId, RequestId> held_back_;
  std::map<RequestId, TenantId> full_;
  std::uint64_t revision_ = 0;
};

}  // namespace gpumem::core
