#pragma once
#include <array>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/core/types.h"

namespace gpumem::core {

/// What a charged byte of the pool is doing. Every state counts against the limit.
enum class Charge : std::size_t {
  kOffered,      ///< granted, the client has not yet said that it is mapped
  kActive,       ///< mapped by a client
  kReturning,    ///< given back, being freed
  kQuarantined,  ///< given back, but the driver has not proved it free
};
inline constexpr std::size_t kCharges = 4;

/// Bytes by what they are doing.
struct Charges {
  std::array<Bytes, kCharges> by_state{};

  Bytes& operator[](Charge state) { return by_state[static_cast<std::size_t>(state)]; }
  Bytes operator[](Charge state) const { return by_state[static_cast<std::size_t>(state)]; }
  Bytes total() const;
  /// What is not on its way back.
  Bytes held() const { return (*this)[Charge::kOffered] + (*this)[Charge::kActive]; }
};

using Quotas = std::vector<Quota>;  ///< one a device

/// The bytes of every device and tenant: the only truth about who is charged. Tenants form a tree, whose
/// leaves are charged; docs/arbiter.md has the figures of a node, by the names used here.
///
/// Invariants, after every call:
///  - on every device, the sum of all leases is at most the pool;
///  - no grant takes a tenant, or one above it, past its limit (they may be over a limit that was lowered, or
///  by
///    what is charged outside the pool);
///  - no grant takes memory that unmet guarantees need, unless the device lends it.
/// A call that would break one, or takes back more than there is, is a bug of the caller and aborts.
class Ledger {
 public:
  enum class Verdict {
    kFits,
    kOverLimit,  ///< a limit would be passed: only memory given back below the node that has it can help
    kNoMemory,   ///< not free, or kept for others' guarantees
  };

  explicit Ledger(const std::vector<Bytes>& pools);

  /// `parent`  none: at the top.
  TenantId add_tenant(Quotas quotas, TenantId parent = {});
  /// Tenants that have the same quotas may share them.
  TenantId add_tenant(std::shared_ptr<const Quotas> quotas, TenantId parent = {});
  void set_quotas(TenantId tenant, std::shared_ptr<const Quotas> quotas);
  void set_parent(TenantId tenant, TenantId parent);
  /// Nothing may be charged to the tenant, and none be below it.
  void remove_tenant(TenantId tenant);
  void set_lending(DeviceIndex device, bool lends);

  /// Whether `least` of a growth could be charged. `spoken_for`: what others wait for by right, where the
  /// device lends their guarantees.
  Verdict verdict(TenantId tenant, DeviceIndex device, Bytes least, Bytes spoken_for = {}) const;
  /// Charges `bytes` as offered; the verdict on them is kFits.
  void reserve(TenantId tenant, DeviceIndex device, Bytes bytes, Bytes spoken_for = {});
  void move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to);
  void release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from);
  /// What is charged to the tenant besides the pool: declared memory and contexts.
  void charge_outside(TenantId tenant, DeviceIndex device, Bytes bytes);
  void release_outside(TenantId tenant, DeviceIndex device, Bytes bytes);

  /// Bytes of the pool that the driver does not give at present: nobody can be granted them.
  void set_missing(DeviceIndex device, Bytes bytes);
  Bytes missing(DeviceIndex device) const { return devices_[device].missing; }

  std::size_t device_count() const { return devices_.size(); }
  /// Grows with every change of what the figures of devices and tenants are made of.
  std::uint64_t revision() const { return revision_; }
  /// The same of one device.
  std::uint64_t revision(DeviceIndex device) const { return devices_[device].revision; }
  Bytes pool(DeviceIndex device) const { return devices_[device].pool; }
  bool lends(DeviceIndex device) const { return devices_[device].lends; }
  Bytes free(DeviceIndex device) const;
  const Charges& charges(DeviceIndex device) const { return root_.accounts[device].charges; }
  Bytes outside(DeviceIndex device) const { return root_.accounts[device].outside; }
  /// Sum of all promises.
  Bytes promised(DeviceIndex device) const { return root_.accounts[device].promised; }
  Bytes kept(DeviceIndex device) const { return root_.accounts[device].kept; }
  bool is_idle(TenantId tenant) const;

  const Charges& charges(TenantId tenant, DeviceIndex device) const;
  Bytes outside(TenantId tenant, DeviceIndex device) const;
  const Quota& quota(TenantId tenant, DeviceIndex device) const { return (*node(tenant).quotas)[device]; }
  TenantId parent(TenantId tenant) const { return node(tenant).parent; }
  Bytes used(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).used; }
  Bytes promised(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).promised; }
  /// To those below the tenant.
  Bytes members_promised(TenantId tenant, DeviceIndex device) const;
  Bytes burst(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).burst(); }
  Bytes debt(TenantId tenant, DeviceIndex device) const;
  /// Of the tenant's own guarantee.
  Bytes unmet(TenantId tenant, DeviceIndex device) const;
  /// What can be claimed, counted from the tenant up to `upto`, or to the top.
  Bytes claimable(TenantId tenant, DeviceIndex device, TenantId upto = {}) const;
  /// The most of the pool that can ever be the tenant's: what is promised to others can not, unless it is
  /// lent.
  Bytes reach(TenantId tenant, DeviceIndex device) const;
  /// What the tenant could have more if all others gave back whatever they may be asked for: its own limit
  /// and reach, less what it has.
  Bytes room(TenantId tenant, DeviceIndex device) const;
  /// Another number than before: promises have changed, and with them everybody's reach.
  std::uint64_t promises_revision(DeviceIndex device) const { return devices_[device].promises_revision; }
  /// The first tenant, from this one up, whose limit stands in the way of `bytes`; none: no limit does.
  TenantId limiting(TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// By how much `bytes` more of the tenant would pass the limit of `at`, the tenant itself or one above it.
  Bytes excess_at(TenantId at, TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// What must stay to be had for others than the tenant.
  Bytes kept_for_others(TenantId tenant, DeviceIndex device) const;
  /// The most that the tenant can ever have: its reach, as far as its limits allow.
  Bytes ceiling(TenantId tenant, DeviceIndex device) const;
  /// Who uses more than its limit.
  const std::set<TenantId>& in_debt(DeviceIndex device) const { return devices_[device].in_debt; }
  /// What the tenant could be granted now, if nobody waited.
  Bytes available(TenantId tenant, DeviceIndex device, Bytes spoken_for = {}) const;

  /// A child of `node` with its burst: the one to be asked first comes first.
  struct Bursting {
    std::uint32_t priority = 0;
    double share = 0;  ///< burst by weight
    TenantId tenant;
    bool operator<(const Bursting& other) const {
      if (priority != other.priority) return priority < other.priority;
      return share != other.share ? share > other.share : tenant < other.tenant;
    }
  };
  /// The children of `node` (none: the top) that have a burst.
  const std::set<Bursting>& bursting(TenantId node, DeviceIndex device) const;

  /// Accounts whose use or quotas changed since the last call; none as tenant: the device itself.
  std::vector<std::pair<TenantId, DeviceIndex>> take_changed();

 private:
  // What an inner node adds to an account.
  struct Members {
    Bytes kept;
    Bytes promised;
    std::set<Bursting> bursting;
  };
  struct Account {
    Charges charges;
    Bytes outside;
    Bytes kept;
    Bytes promised;
    std::unique_ptr<Members> members;  ///< if it has any
    Bytes used() const { return charges.total() + outside; }
    Bytes members_kept() const { return members ? members->kept : Bytes{}; }
  };
  struct Node {
    TenantId parent;
    std::size_t children = 0;
    std::shared_ptr<const Quotas> quotas;
    std::vector<Account> accounts;  ///< none, as long as nothing is charged and nobody is below: most tenants
  };
  // What follows from a node's account and quota.
  struct Figures {
    Bytes used;
    Bytes kept;
    Bytes promised;
    Bytes burst() const { return used + kept - promised; }
  };
  struct Device {
    Bytes pool;
    Bytes missing;
    bool lends = false;
    std::set<TenantId> in_debt;
    std::uint64_t promises_revision = 0;
    std::uint64_t revision = 0;
  };

  const Node& node(TenantId tenant) const;
  Node& node(TenantId tenant) { return const_cast<Node&>(std::as_const(*this).node(tenant)); }
  const Node& node_or_root(TenantId tenant) const { return tenant ? node(tenant) : root_; }
  Node& node_or_root(TenantId tenant) { return tenant ? node(tenant) : root_; }
  const Account* account(TenantId tenant, DeviceIndex device) const;
  Figures figures(TenantId tenant, DeviceIndex device) const { return figures(node_or_root(tenant), device); }
  static Figures figures(const Node& one, DeviceIndex device);
  // The accounts of a node, on every device.
  static std::vector<Account>& open(Node& one);
  void close_if_idle(TenantId tenant);
  // Applies `change` to the accounts of the tenant and of all above it, and brings up to date what follows.
  template <class Change>
  void update(TenantId tenant, DeviceIndex device, Change&& change);
  void mark_changed(TenantId tenant);
  void join(TenantId tenant);
  void leave(TenantId tenant);
  void count_change(DeviceIndex device) {
    ++revision_;
    ++devices_[device].revision;
  }
  static void derive(Account& account, const Quota& quota);
  void note_debt(TenantId tenant, DeviceIndex device);
  static void count_in(Members& members, const Figures& child, const Quota& quota, TenantId id);
  static void rank(Members& members, Bytes before, Bytes after, const Quota& quota, TenantId id);
  static void count_out(Members& members, const Figures& child, const Quota& quota, TenantId id);
  static Bytes own_claimable(const Node& one, DeviceIndex device);
  static Bytes excess(const Node& one, DeviceIndex device, Bytes bytes, Bytes claimable);
  Bytes obtainable(TenantId tenant, DeviceIndex device, Bytes spoken_for) const;

  std::vector<Device> devices_;
  Node root_;  ///< above all; has no quota
  std::unordered_map<TenantId, Node> tenants_;
  std::vector<std::pair<TenantId, DeviceIndex>> changed_;
  IdSource<TenantId> ids_;
  std::uint64_t revision_ = 0;
};

}  // namespace gpumem::core
