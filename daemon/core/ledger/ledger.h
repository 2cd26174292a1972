#pragma once
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "daemon/core/words/types.h"

namespace gpumem::core {

/// The state of a charged byte of the pool. Every state counts against the limit.
enum class Charge : std::size_t {
  kOffered,      ///< granted, the client has not yet said that it is mapped
  kActive,       ///< mapped by a client
  kReturning,    ///< given back, being freed
  kQuarantined,  ///< given back, but the driver has not proved it free
  kReserved,     ///< not on loan: the unused part of a job's reservation
};
inline constexpr std::size_t kCharges = 5;

/// Bytes by state.
struct Charges {
  std::array<Bytes, kCharges> by_state{};

  Bytes& operator[](Charge state) { return by_state[static_cast<std::size_t>(state)]; }
  Bytes operator[](Charge state) const { return by_state[static_cast<std::size_t>(state)]; }
  Bytes total() const;
  /// The bytes that are not on their way back.
  Bytes held() const { return (*this)[Charge::kOffered] + (*this)[Charge::kActive]; }
};

using Quotas = std::vector<Quota>;  ///< one a device

/// The memory that a grant may draw on, if the device lends idle guarantees.
struct GrantTerms {
  Bytes spoken_for{};      ///< the claims of others that wait
  bool may_borrow = true;  ///< false: no memory that is guaranteed to others
};

/// The charges of every device and tenant. No other record of them exists. Tenants form a tree, whose leaves
/// are charged; docs/arbiter.md has the figures of a node, by the names used here.
///
/// Invariants, after every call:
///  - On every device, the sum of all leases is at most the pool.
///  - No grant takes a tenant, or one above it, past its limit. A lowered limit, or charges outside the pool,
///    can leave it over its limit.
///  - Charges outside the pool count above the tenant only up to the tenant's own limit. Those of a part are
///    counted in full for its tenant.
///  - No grant takes memory that unmet guarantees need, unless the device lends it.
///  - A leaf with a reservation is charged at least its bytes: the part not on loan is charged as reserved.
/// A call that would break one, or takes back more than there is, is a bug of the caller and aborts.
class Ledger {
 public:
  enum class Verdict {
    kFits,
    kOverLimit,  ///< over the limit of a node: only memory given back below that node can help
    kNoMemory,   ///< not free, or kept for others' guarantees
  };

  explicit Ledger(const std::vector<Bytes>& pools);

  /// `parent`  none: at the top.
  TenantId add_tenant(Quotas quotas, TenantId parent = {});
  /// A part of the tenant: its parts share its guarantee, its limit and its reach. A part has no guarantee
  /// itself.
  TenantId add_part(Quotas quotas, TenantId whole);
  void set_quotas(TenantId tenant, Quotas quotas);
  void set_parent(TenantId tenant, TenantId parent);
  /// The tenant has no charges, and no tenants below it.
  void remove_tenant(TenantId tenant);
  void set_lending(DeviceIndex device, bool lends);
  /// Charged memory of the tenant and its parts that nobody can be asked for. As long as there is any, they
  /// are lent no memory that is guaranteed to others.
  void set_unanswered(TenantId tenant, DeviceIndex device, Bytes bytes);
  Bytes unanswered(TenantId tenant, DeviceIndex device) const {
    const auto found = devices_[device].unanswered.find(whole(tenant));
    return found == devices_[device].unanswered.end() ? Bytes{} : found->second;
  }

  /// Whether `min_bytes` of a growth could be charged.
  Verdict verdict(TenantId tenant, DeviceIndex device, Bytes min_bytes, const GrantTerms& terms = {}) const;
  /// Charges `bytes` as offered. They come from the leaf's reservation as far as it suffices; the verdict on
  /// the rest is kFits.
  void reserve(TenantId tenant, DeviceIndex device, Bytes bytes, const GrantTerms& terms = {});
  void move(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from, Charge to);
  void release(TenantId tenant, DeviceIndex device, Bytes bytes, Charge from);
  /// Charges memory outside the pool: declared memory and contexts.
  void charge_outside(TenantId tenant, DeviceIndex device, Bytes bytes);
  void release_outside(TenantId tenant, DeviceIndex device, Bytes bytes);
  /// Free bytes leave the pool for the driver: they are missing, and charged outside the pool. The verdict on
  /// them is kFits.
  void give_to_driver(TenantId tenant, DeviceIndex device, Bytes bytes, const GrantTerms& terms = {});
  /// Charges memory that the broker before has lent, whatever the limits. It is within the pool.
  void adopt(TenantId tenant, DeviceIndex device, Bytes bytes, Charge state);
  /// Makes the leaf's reservation larger by `bytes`, which are free.
  void add_reservation(TenantId leaf, DeviceIndex device, Bytes bytes);
  /// Takes `bytes` that are not on loan out of the leaf's reservation; they are free then.
  void give_up_reserved(TenantId leaf, DeviceIndex device, Bytes bytes);
  /// The leaf has no reservation any more. What is on loan stays charged.
  void end_reservation(TenantId leaf, DeviceIndex device);
  /// Moves charges of `from` to `to`, whatever the limits of that. The reservation of `from` is smaller by
  /// them; that of `to` covers them.
  void transfer(TenantId from, TenantId to, DeviceIndex device, const Charges& charges, Bytes outside);

  /// Bytes of the pool that the driver does not give at present. They cannot be granted.
  void set_missing(DeviceIndex device, Bytes bytes);
  Bytes missing(DeviceIndex device) const { return devices_[device].missing; }
  /// Missing bytes that can be created on demand. They cannot be granted before that.
  void set_creatable(DeviceIndex device, Bytes bytes);
  Bytes creatable(DeviceIndex device) const { return devices_[device].creatable; }
  /// The charges that the pool has no memory for at present, since more is missing than was free.
  Bytes shortage(DeviceIndex device) const;

  std::size_t device_count() const { return devices_.size(); }
  /// Grows with every change that the figures of devices and tenants depend on.
  std::uint64_t revision() const { return revision_; }
  /// As revision(), for one device.
  std::uint64_t revision(DeviceIndex device) const { return devices_[device].revision; }
  Bytes pool(DeviceIndex device) const { return devices_[device].pool; }
  bool lends(DeviceIndex device) const { return devices_[device].lends; }
  Bytes free(DeviceIndex device) const;
  /// Free memory, and memory that can be created on demand.
  Bytes free_or_creatable(DeviceIndex device) const { return free(device) + creatable(device); }
  const Charges& charges(DeviceIndex device) const { return root_.accounts[device].charges; }
  /// Of all tenants, in full.
  Bytes outside(DeviceIndex device) const { return devices_[device].outside; }
  /// The sum of all promises.
  Bytes promised(DeviceIndex device) const { return root_.accounts[device].promised; }
  Bytes kept(DeviceIndex device) const { return root_.accounts[device].kept; }
  /// As kept(), as if nothing were used outside the pool.
  Bytes pool_kept(DeviceIndex device) const { return root_.accounts[device].pool_kept; }
  bool is_idle(TenantId tenant) const;
  /// Whether the tenant has tenants below it.
  bool has_members(TenantId tenant) const { return node(tenant).children != 0; }

  const Charges& charges(TenantId tenant, DeviceIndex device) const {
    return account(tenant, device).charges;
  }
  Bytes outside(TenantId tenant, DeviceIndex device) const { return account(tenant, device).outside; }
  /// The part of the leaf's reservation that is not on loan. A growth of so much fits at any time.
  Bytes reserved(TenantId leaf, DeviceIndex device) const {
    return account(leaf, device).charges[Charge::kReserved];
  }
  Bytes on_loan(TenantId leaf, DeviceIndex device) const {
    return charges(leaf, device).total() - reserved(leaf, device);
  }
  Bytes reservation(TenantId leaf, DeviceIndex device) const { return account(leaf, device).reservation; }
  /// The reservations of all parts of a tenant.
  Bytes reservations(TenantId tenant, DeviceIndex device) const {
    return account(tenant, device).reservation;
  }
  /// The bytes that the parts of the leaf's tenant may still reserve (Quota::reserve).
  Bytes reservable(TenantId leaf, DeviceIndex device) const {
    const TenantId of = whole(leaf);
    return quota(of, device).reserve.minus(reservations(of, device));
  }
  /// The part of `bytes` on loan to the leaf that its reservation takes back when they are returned.
  Bytes refilled(TenantId leaf, DeviceIndex device, Bytes bytes) const;
  /// The part of outside() that counts for the parent tenants: at most the room under this tenant's limit. Of
  /// a part: all of it.
  Bytes outside_above(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).counted; }
  const Quota& quota(TenantId tenant, DeviceIndex device) const { return node(tenant).quotas[device]; }
  TenantId parent(TenantId tenant) const { return node(tenant).parent; }
  /// The tenant that a part is of; of all others itself.
  TenantId whole(TenantId tenant) const { return tenant && node(tenant).is_part ? parent(tenant) : tenant; }
  Bytes used(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).used(); }
  /// The use of the tenant, and the memory kept for it and the tenants below it.
  Bytes used_and_kept(TenantId tenant, DeviceIndex device) const {
    const Figures own = figures(tenant, device);
    return own.used() + own.kept;
  }
  Bytes promised(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).promised; }
  /// The promises to the tenants below.
  Bytes members_promised(TenantId tenant, DeviceIndex device) const {
    return account(tenant, device).members.promised;
  }
  Bytes burst(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).burst(); }
  /// The tenant's bytes of the pool beyond its promises. Claims of others can be served from them. Memory
  /// outside the pool does not count, so no declaration changes which tenant is asked.
  Bytes borrowed(TenantId tenant, DeviceIndex device) const { return figures(tenant, device).borrowed(); }
  Bytes debt(TenantId tenant, DeviceIndex device) const;
  /// The unused part of the tenant's own guarantee.
  Bytes unmet(TenantId tenant, DeviceIndex device) const;
  /// The claimable bytes, counted from the tenant up to `upto`, or to the top.
  Bytes claimable(TenantId tenant, DeviceIndex device, TenantId upto = {}) const;
  /// The most of the pool that the tenant can have as long as it has what is unanswered. Memory promised to
  /// others is not in it, unless the device lends it and the tenant has nothing unanswered.
  Bytes reach(TenantId tenant, DeviceIndex device) const;
  /// The bytes that the tenant could still get if all others gave back as much as they can be asked for: its
  /// own limit and reach, less its use. Of a part: within those of the whole, too.
  Bytes room(TenantId tenant, DeviceIndex device) const;
  /// Changes whenever promises change, and with them the reach of every tenant.
  std::uint64_t promises_revision(DeviceIndex device) const { return devices_[device].promises_revision; }
  /// The first tenant, from this one up, whose limit has no room for `bytes`. None: all have. Memory that
  /// others declare never obstructs a claim.
  TenantId limiting(TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// The excess over the limit of `at`, if the tenant had `bytes` more. `at`  the tenant or one above it.
  Bytes excess_at(TenantId at, TenantId tenant, DeviceIndex device, Bytes bytes) const;
  /// Bytes that must stay free so that other tenants can claim their guarantees.
  Bytes kept_for_others(TenantId tenant, DeviceIndex device) const;
  /// The most that a tenant can ever have: its reach with nothing unanswered, within the limits from the
  /// tenant to the top. `may_borrow`  it takes what is lent of others' promises.
  struct Ceiling {
    Bytes bytes;
    TenantId owner;            ///< of the limit that bounds it; none: the reach does
    Bytes promised_to_others;  ///< guaranteed below the owner to others; the limit leaves it out
  };
  Ceiling find_ceiling(TenantId tenant, DeviceIndex device, bool may_borrow = true) const;
  Bytes ceiling(TenantId tenant, DeviceIndex device, bool may_borrow = true) const {
    return find_ceiling(tenant, device, may_borrow).bytes;
  }
  /// The tenants that use more than their limit.
  const std::set<TenantId>& in_debt(DeviceIndex device) const { return devices_[device].in_debt; }
  /// The tenants whose limit has no room for all claims that can be made below it. This happens if guarantees
  /// are raised, or the limit is lowered, while members use it.
  const std::set<TenantId>& overcommitted(DeviceIndex device) const { return devices_[device].overcommitted; }
  /// The most that the tenant could be granted now, if no request waited.
  Bytes available(TenantId tenant, DeviceIndex device, const GrantTerms& terms = {}) const;

  /// As available(), with memory that is created on demand.
  Bytes available_on_demand(TenantId tenant, DeviceIndex device, const GrantTerms& terms = {}) const;

  /// As available_on_demand(), for a new tenant at the top without promises.
  Bytes available_to_newcomers(DeviceIndex device, const GrantTerms& terms = {}) const;

  /// A tenant that has borrowed. The first in the order is asked first.
  struct Borrower {
    std::uint32_t priority = 0;
    double share = 0;  ///< the bytes borrowed, by weight
    TenantId tenant;
    bool operator<(const Borrower& other) const {
      if (priority != other.priority) return priority < other.priority;
      return share != other.share ? share > other.share : tenant < other.tenant;
    }
  };
  using Ranking = std::set<Borrower>;
  /// The children of `node` (none: the top) that have borrowed.
  const Ranking& borrowers(TenantId node, DeviceIndex device) const {
    return account(node, device).members.borrowers;
  }

  using Changes = std::vector<std::pair<TenantId, DeviceIndex>>;
  /// The accounts whose use or quotas changed since the last call; no tenant: the device itself. They replace
  /// the contents of `into`.
  void take_changed(Changes& into);
  /// The accounts that may have other figures than at the last call, without those above them. Tenants may be
  /// gone. They replace the contents of `into`.
  void take_touched(Changes& into) {
    into.clear();
    into.swap(touched_);
  }

 private:
  // The sums and the order of a node's children. Empty for a leaf.
  struct Members {
    Bytes kept;
    Bytes pool_kept;
    Bytes promised;
    Ranking borrowers;
  };
  struct Account {
    Charges charges;
    Bytes outside;      ///< of an inner node: the parts that count of its children
    Bytes reservation;  ///< of a leaf; of a tenant with parts, the sum of theirs
    Bytes kept;         ///< of the guarantee, by all use
    Bytes pool_kept;    ///< of the guarantee, by the use of the pool
    Bytes promised;
    Members members;
    Bytes used() const { return charges.total() + outside; }
  };
  struct Node {
    TenantId parent;
    bool is_part = false;
    std::size_t children = 0;
    Quotas quotas;
    std::vector<Account> accounts;  ///< one a device
  };
  // The figures that follow from a node's account and quota.
  struct Figures {
    Bytes pool;  // charges of the pool
    Bytes outside;
    Bytes kept;
    Bytes pool_kept;
    Bytes promised;
    Bytes counted;  // the part of `outside` that counts for the parent
    Bytes used() const { return pool + outside; }
    Bytes burst() const { return used() + kept - promised; }
    Bytes borrowed() const { return pool + pool_kept - promised; }
  };
  // A change of the charges outside the pool.
  struct Shift {
    Bytes more;
    Bytes less;
  };
  struct Device {
    Bytes pool;
    Bytes missing;
    Bytes creatable{};
    Bytes outside{};
    bool lends = false;
    std::map<TenantId, Bytes> unanswered{};
    std::set<TenantId> in_debt;
    std::set<TenantId> overcommitted;
    std::uint64_t promises_revision = 0;
    std::uint64_t revision = 0;
  };

  const Node& node(TenantId tenant) const {
    const auto found = tenants_.find(tenant);
    GPUMEM_CHECK(found != tenants_.end(), "tenant known");
    return found->second;
  }
  Node& node(TenantId tenant) { return const_cast<Node&>(std::as_const(*this).node(tenant)); }
  const Node& node_or_root(TenantId tenant) const { return tenant ? node(tenant) : root_; }
  Node& node_or_root(TenantId tenant) { return tenant ? node(tenant) : root_; }
  const Account& account(TenantId tenant, DeviceIndex device) const {
    GPUMEM_CHECK(device < devices_.size(), "device known");
    return node_or_root(tenant).accounts[device];
  }
  Figures figures(TenantId tenant, DeviceIndex device) const { return figures(node_or_root(tenant), device); }
  Figures figures(const Node& one, DeviceIndex device) const;
  // Applies `change` to the charges of the tenant and of all above it, `shift` to its charges outside the
  // pool, and updates all figures that depend on them.
  template <class Change>
  void update(TenantId tenant, DeviceIndex device, Change&& change, Shift shift = {});
  void mark_changed(TenantId tenant);
  void touch(TenantId tenant, DeviceIndex device) {
    if (const std::pair one(tenant, device); touched_.empty() || touched_.back() != one)
      touched_.push_back(one);
  }
  void join(TenantId tenant);
  void leave(TenantId tenant);
  void count_change(DeviceIndex device) {
    ++revision_;
    ++devices_[device].revision;
  }
  static void derive(Account& account, const Quota& quota);
  void note_limit(TenantId tenant, DeviceIndex device);
  void add_to_reservation(TenantId leaf, DeviceIndex device, Bytes more, Bytes less);
  static void count_in(Members& members, const Figures& child, const Quota& quota, TenantId id);
  static void rank(Members& members, Bytes before, Bytes after, const Quota& quota, TenantId id);
  static void count_out(Members& members, const Figures& child, const Quota& quota, TenantId id);
  Bytes reach(TenantId tenant, DeviceIndex device, bool may_borrow) const;
  Bytes own_claimable(const Node& one, DeviceIndex device) const;
  static Bytes firm(const Figures& own, Bytes limit);
  Bytes excess(const Node& one, DeviceIndex device, Bytes bytes, Bytes claimable) const;
  Bytes obtainable(TenantId tenant, DeviceIndex device, const GrantTerms& terms, Bytes free_bytes) const;
  Bytes available(TenantId tenant, DeviceIndex device, const GrantTerms& terms, Bytes free_bytes) const;

  Node root_;  ///< above all tenants; unlimited
  std::vector<Device> devices_;
  std::unordered_map<TenantId, Node> tenants_;
  Changes changed_;
  Changes touched_;
  std::uint64_t last_tenant_ = 0;
  std::uint64_t revision_ = 0;
};

}  // namespace gpumem::core
