#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include "daemon/core/words/types.h"

namespace gpumem::core::model {

/// Amounts are signed, so that what is too much is a negative number.
using Number = std::int64_t;
inline Number number(Bytes bytes) { return static_cast<Number>(bytes.count); }

using NodeIndex = std::size_t;

/// Who is charged with what: plain lists. The node kTop stands above all others and has no quota.
struct Books {
  static constexpr NodeIndex kTop = 0;

  struct Device {
    Number pool = 0;
    Number granularity = 1;
    Number missing = 0;
    bool lends = false;
  };
  struct Node {
    NodeIndex parent = kTop;
    std::vector<Quota> quotas;
    std::vector<Number> leases;        ///< of a leaf, by device
    std::vector<Number> outside;       ///< likewise: declared memory and overhead
    std::vector<Number> reservations;  ///< likewise: it is charged with no less
    bool is_part =
        false;  ///< of its parent, a tenant with jobs: guarantee, limit and reach are those of all parts
    bool gone = false;
    std::set<DeviceIndex> barred{};  ///< where it is lent nothing that is guaranteed to others
  };

  explicit Books(std::vector<Device> all);

  NodeIndex add(std::vector<Quota> quotas, NodeIndex parent = kTop);
  std::vector<NodeIndex> children(NodeIndex node) const;
  /// From the node to the top, both included.
  std::vector<NodeIndex> way_up(NodeIndex node) const;
  /// Of all nodes, with what they have reserved.
  Number leased(DeviceIndex device) const;
  /// What a leaf has reserved and does not use.
  Number reserved(NodeIndex leaf, DeviceIndex device) const;
  bool has_parts(NodeIndex node) const;
  /// Negative where more is lent and missing than there is.
  Number free(DeviceIndex device) const;

  std::vector<Device> devices;
  std::vector<Node> nodes;
};

/// The figures of docs/arbiter.md for every node on one device, each by its definition.
class Accounts {
 public:
  struct Account {
    Number leases = 0;   ///< and what is reserved
    Number outside = 0;  ///< the sum of the children, each as far as its limit allows, parts in full
    Number used = 0;
    Number promised = 0;
    Number members_kept = 0;  ///< the sum of the children's
    Number kept = 0;
    Number members_pool_kept = 0;
    Number pool_kept = 0;  ///< as kept, with what is used of the pool alone
    Number burst = 0;
  };

  /// `books`  outlives this.
  Accounts(const Books& books, DeviceIndex device);

  const Account& of(NodeIndex node) const { return accounts_[node]; }
  Number guarantee(NodeIndex node) const;
  Number limit(NodeIndex node) const;
  /// What a leaf can claim, counted from it up to `last`.
  Number claimable(NodeIndex leaf, NodeIndex last = Books::kTop) const;
  /// The most of the pool that can ever be the leaf's: the rest is promised to others, and not lent.
  Number reach(NodeIndex leaf) const;
  /// What its own limit and reach let it have more. Of a part: those of the whole, too.
  Number room(NodeIndex leaf) const;
  /// By how much `bytes` more of the leaf would pass the node's limit. Not positive: not at all.
  Number excess_at(NodeIndex node, NodeIndex leaf, Number bytes) const;
  bool over_limit_at(NodeIndex node, NodeIndex leaf, Number bytes) const {
    return excess_at(node, leaf, bytes) > 0;
  }
  /// Anywhere on the way to the top.
  bool over_limit(NodeIndex leaf, Number bytes) const;
  /// Whether it is lent what is guaranteed to others.
  bool may_borrow(NodeIndex leaf) const;
  /// Whether `bytes` can be charged to the leaf, where others wait by right for `spoken_for`.
  bool fits(NodeIndex leaf, Number bytes, Number spoken_for) const;
  /// The most that fits.
  Number available(NodeIndex leaf) const;

 private:
  void count(NodeIndex node);
  Number firm(NodeIndex node) const;

  const Books& books_;
  DeviceIndex device_;
  std::vector<Account> accounts_;
};

/// The most that a leaf could ever have: what fits if nobody else has anything.
Number ceiling(Books books, NodeIndex leaf, DeviceIndex device);

}  // namespace gpumem::core::model
