#pragma once
#include <array>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
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

/// What a grant may draw on, where the device lends idle guarantees.
struct GrantTerms {
  Bytes spoken_for{};      ///< what others wait for by right
  bool may_borrow = true;  ///< false: nothing that others are guaranteed
};

/// The bytes of every device and tenant: the only truth about who is charged. Tenants form a tree, whose
/// leaves are charged; docs/arbiter.md has the figures of a node, by the names used here.
///
/// Invariants, after every call:
///  - on every device, the sum of all leases is at most the pool;
///  - no grant takes a tenant, or one above it, past its limit (they may be over a limit that was lowered, or
///  by
///    what is charged outside the pool);
///  - what is charged to a tenant outside the pool counts above it at most as far as its own limit allows;
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

  /// Whether `least` of a growth could be charged.
  Verdict verdict(TenantId tenant, DeviceIndex device, Bytes least, const GrantTerms& terms = {}) const;
  /// Charges `bytes` as offered; the verdict on them is kFits.
  void reserve(TenantId tenant, DeviceIndex device, Bytes bytes, const GrantTerms& terms = {});
  void move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to);
  void release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from);
  /// What is charged to the tenant besides the pool: declared memory and contexts.
  void charge_outside(TenantId tenant, DeviceIndex device, Bytes bytes);
  void release_outside(TenantId tenant, DeviceIndex device, Bytes bytes);
  /// Charges what the broker before has lent, whatever the limits. All of it is within the pool.
  void adopt(TenantId tenant, DeviceIndex device, Bytes bytes, Charge state);
  /// Charges of `from` become charges of `to`, whatever its limits.
  void transfer(TenantId from, TenantId to, DeviceIndex device, const Charges& charges, Bytes outside);

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
  /// Whether others are below the tenant.
  bool has_members(TenantId tenant) const { return node(tenant).children != 0; }
  /// A small number of the tenant's own while it is there; others get it after. 0: none, the device itself.
  static std::size_t slot(TenantId tenant) { return tenant.value & (kMaxTenants - 1); }

  const Charges& charges(TenantId tenant, DeviceIndex device) const;
  Bytes outside(TenantId tenant, DeviceIndex device) const;
  /// Of that, what counts in the tenants above it: as far as its limit has room.
  Bytes outside_above(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).counted; }
  const Quota& quota(TenantId tenant, DeviceIndex device) const { return node(tenant).quota(device); }
  TenantId parent(TenantId tenant) const { return node(tenant).parent; }
  Bytes used(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).used(); }
  /// With what is kept for it and those below it.
  Bytes used_and_kept(TenantId tenant, DeviceIndex device) const {
    const Figures own = figures(tenant, device);
    return own.used() + own.kept;
  }
  Bytes promised(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).promised; }
  /// To those below the tenant.
  Bytes members_promised(TenantId tenant, DeviceIndex device) const;
  Bytes burst(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).burst(); }
  /// What the tenant has of the pool beyond what it is promised: what claims of others can be served from.
  /// Memory outside the pool is not in it, so no declaration changes who is asked.
  Bytes borrowed(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).borrowed(); }
  Bytes debt(TenantId tenant, DeviceIndex device) const;
  /// Of the tenant's own guarantee.
  Bytes unmet(TenantId tenant, DeviceIndex device) const;
  /// What can be claimed, counted from the tenant up to `upto`, or to the top.
  Bytes claimable(TenantId tenant, DeviceIndex device, TenantId upto = {}) const;
  /// The most of the pool that can ever be the tenant's: what is promised to others can not, unless it is
  /// lent and the tenant may borrow.
  Bytes reach(TenantId tenant, DeviceIndex device, bool may_borrow = true) const;
  /// What the tenant could have more if all others gave back whatever they may be asked for: its own limit
  /// and reach, less what it has.
  Bytes room(TenantId tenant, DeviceIndex device) const;
  /// Another number than before: promises have changed, and with them everybody's reach.
  std::uint64_t promises_revision(DeviceIndex device) const { return devices_[device].promises_revision; }
  /// The first tenant, from this one up, whose limit stands in the way of `bytes`; none: no limit does. What
  /// others declare is never in the way of what can be claimed.
  TenantId limiting(TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// By how much `bytes` more of the tenant would pass the limit of `at`, the tenant itself or one above it.
  Bytes excess_at(TenantId at, TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// What must stay to be had for others than the tenant.
  Bytes kept_for_others(TenantId tenant, DeviceIndex device) const;
  /// The most that the tenant can ever have: its reach, as far as its limits allow.
  Bytes ceiling(TenantId tenant, DeviceIndex device, bool may_borrow = true) const;
  /// Who uses more than its limit.
  const std::set<TenantId>& in_debt(DeviceIndex device) const { return devices_[device].in_debt; }
  /// Whose limit has no room for all that can be claimed below it, since guarantees were raised or the limit
  /// was lowered while its members used it.
  const std::set<TenantId>& overcommitted(DeviceIndex device) const { return devices_[device].overcommitted; }
  /// What the tenant could be granted now, if nobody waited.
  Bytes available(TenantId tenant, DeviceIndex device, const GrantTerms& terms = {}) const;

  /// The same of a tenant to come, which is promised nothing and below nobody.
  Bytes available_to_newcomers(DeviceIndex device, const GrantTerms& terms = {}) const;

  /// A child of `node` that has borrowed: the one to be asked first comes first.
  struct Borrower {
    std::uint32_t priority = 0;
    double share = 0;  ///< what it borrowed, by weight
    TenantId tenant;
    bool operator<(const Borrower& other) const {
      if (priority != other.priority) return priority < other.priority;
      return share != other.share ? share > other.share : tenant < other.tenant;
    }
  };
  using Ranking = std::set<Borrower>;
  /// The children of `node` (none: the top) that have borrowed.
  const Ranking& borrowers(TenantId node, DeviceIndex device) const;

  using Changes = std::vector<std::pair<TenantId, DeviceIndex>>;
  /// Accounts whose use or quotas changed since the last call; none as tenant: the device itself. They come
  /// in place of what `into` has.
  void take_changed(Changes& into);

 private:
  // What an inner node adds to an account.
  struct Members {
    Bytes kept;
    Bytes pool_kept;
    Bytes promised;
    Ranking borrowers;
  };
  struct Account {
    Charges charges;
    Bytes outside;    ///< of an inner node: as far as it counts of those below
    Bytes kept;       ///< of the guarantee, by what is used
    Bytes pool_kept;  ///< of the guarantee, by what is used of the pool
    Bytes promised;
    std::unique_ptr<Members> members;  ///< if it has any
    Bytes used() const { return charges.total() + outside; }
    Bytes members_kept() const { return members ? members->kept : Bytes{}; }
    Bytes members_pool_kept() const { return members ? members->pool_kept : Bytes{}; }
  };
  struct alignas(64) Node {
    TenantId id;  ///< none: nobody has the slot
    TenantId parent;
    std::size_t children = 0;
    std::shared_ptr<const Quota[]> quotas;  ///< one a device
    std::vector<Account> accounts;  ///< none, as long as nothing is charged and nobody is below: most tenants
    const Quota& quota(DeviceIndex device) const { return quotas.get()[device]; }
  };
  // What follows from a node's account and quota.
  struct Figures {
    Bytes pool;     // charges of the pool
    Bytes outside;  // besides
    Bytes kept;
    Bytes pool_kept;
    Bytes promised;
    Bytes counted;  // of `outside`, in the node above
    Bytes used() const { return pool + outside; }
    Bytes burst() const { return used() + kept - promised; }
    Bytes borrowed() const { return pool + pool_kept - promised; }
  };
  // A change of what is charged outside the pool.
  struct Shift {
    Bytes more;
    Bytes less;
  };
  struct Device {
    Bytes pool;
    Bytes missing;
    bool lends = false;
    std::set<TenantId> in_debt;
    std::set<TenantId> overcommitted;
    std::uint64_t promises_revision = 0;
    std::uint64_t revision = 0;
  };

  bool knows(TenantId tenant) const {
    const std::size_t at = slot(tenant);
    return tenant && at < tenants_.size() && tenants_[at].id == tenant;
  }
  TenantId next_id();
  std::shared_ptr<const Quota[]> checked(std::shared_ptr<const Quotas> quotas) const;
  const Node& node(TenantId tenant) const {
    GPUMEM_CHECK(knows(tenant), "tenant known");
    return tenants_[slot(tenant)];
  }
  Node& node(TenantId tenant) { return const_cast<Node&>(std::as_const(*this).node(tenant)); }
  const Node& node_or_root(TenantId tenant) const { return tenant ? node(tenant) : root_; }
  Node& node_or_root(TenantId tenant) { return tenant ? node(tenant) : root_; }
  const Account* account(TenantId tenant, DeviceIndex device) const;
  Figures figures(TenantId tenant, DeviceIndex device) const { return figures(node_or_root(tenant), device); }
  Figures figures(const Node& one, DeviceIndex device) const;
  // The accounts of a node, on every device.
  std::vector<Account>& open(Node& one);
  void close_if_idle(TenantId tenant);
  // Applies `change` to the charges of the tenant and of all above it, `shift` to what it has outside the
  // pool, and brings up to date what follows.
  template <class Change>
  void update(TenantId tenant, DeviceIndex device, Change&& change, Shift shift = {});
  void mark_changed(TenantId tenant);
  void join(TenantId tenant);
  void leave(TenantId tenant);
  void count_change(DeviceIndex device) {
    ++revision_;
    ++devices_[device].revision;
  }
  static void derive(Account& account, const Quota& quota);
  void note_limit(TenantId tenant, DeviceIndex device);
  static void count_in(Members& members, const Figures& child, const Quota& quota, TenantId id);
  static void rank(Members& members, Bytes before, Bytes after, const Quota& quota, TenantId id);
  static void count_out(Members& members, const Figures& child, const Quota& quota, TenantId id);
  Bytes own_claimable(const Node& one, DeviceIndex device) const;
  static Bytes firm(const Figures& own, Bytes limit);
  Bytes excess(const Node& one, DeviceIndex device, Bytes bytes, Bytes claimable) const;
  Bytes obtainable(TenantId tenant, DeviceIndex device, const GrantTerms& terms) const;

  static constexpr std::size_t kMaxTenants = std::size_t{1} << 24;
  Node root_;  ///< above all; has no quota
  std::vector<Device> devices_;
  std::vector<Node> tenants_;        ///< by slot; the first is nobody's
  std::vector<std::size_t> vacant_;  ///< slots
  Changes changed_;
  std::uint64_t last_tenant_ = 0;
  std::uint64_t revision_ = 0;
};

}  // namespace gpumem::core
