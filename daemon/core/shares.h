#pragma once
#include <boost/container/flat_map.hpp>
#include <boost/container/flat_set.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <map>
#include <utility>

#include "daemon/core/ledger.h"
#include "daemon/core/types.h"

namespace gpumem::core {

/// Who pays for extents whose charge is shared: the tenant that has the extent, its holder, and those that
/// have mapped it. docs/regions.md has the rule:
///  - of n that pay, each but the holder pays size / n, rounded down; the holder pays all the rest;
///  - a share grows only where its tenant's limits have room for the growth. What they have no room for, the
///    holder pays.
///
/// Invariant  the parts of an extent that others pay are with the ledger, and less than the extent.
class Shares {
 public:
  /// With the holder. Each time somebody maps or unmaps, all of them are looked at.
  static constexpr std::size_t kMostPayers = 64;

  /// Tenants besides the holder.
  using Payers = boost::container::flat_set<TenantId>;
  using Parts = boost::container::flat_map<TenantId, Bytes>;
  /// An extent, and who has it.
  struct Extent {
    LeaseId lease;
    TenantId holder;
    DeviceIndex device = 0;
    Bytes size;
  };

  /// Outlives it.
  explicit Shares(Ledger& ledger) : ledger_(ledger) {}

  /// Who paid what, and how far each that paid, and each above it, was beyond its limit.
  struct Standing {
    /// By what is paid, and by that together with what is kept for guarantees.
    using Excess = std::pair<Bytes, Bytes>;
    std::map<LeaseId, Parts> parts;
    std::map<std::pair<TenantId, DeviceIndex>, Excess> beyond;
  };

  struct Settled {
    bool changed = false;   ///< some part is another than before
    bool is_short = false;  ///< a limit had no room for some part
  };
  /// `payers`  have it mapped now. Those that went pay nothing; the others' parts follow the rule.
  Settled settle(const Extent& extent, const Payers& payers);
  /// The same with one that is to map it. The tenant whose limit has no room for its part; none: it pays it.
  TenantId admit(const Extent& extent, Payers payers, TenantId newcomer);
  /// The holder pays all of it. Before the extent is another's, or is given back.
  void drop(LeaseId lease);
  /// Holders pay for everything. Before tenants get other places or limits.
  Standing take_all();
  /// Nobody pays for the extent yet. Limits are looked at by shed().
  void resume(const Extent& extent, const Parts& parts);
  /// Holders pay the parts by which a tenant came further beyond a limit than it was. Of later extents first.
  void shed(const Standing& before);
  /// What those besides the holder pay.
  const Parts& of(LeaseId lease) const;
  /// The sum of that.
  Bytes paid_by_others(LeaseId lease) const;

 private:
  struct Split {
    TenantId holder;
    DeviceIndex device = 0;
    Parts parts;
  };
  void change(const Split& split, TenantId payer, Bytes before, Bytes after);
  Standing::Excess excess(TenantId tenant, DeviceIndex device) const;
  bool is_beyond(const Split& split, TenantId payer, const Standing& before) const;
  bool shed(LeaseId lease, const Standing& before);

  Ledger& ledger_;
  boost::unordered_flat_map<LeaseId, Split, std::hash<LeaseId>> splits_;  ///< of leases that others pay for
};

}  // namespace gpumem::core
