#pragma once
#include <algorithm>
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/sessions/outbox.h"
#include "daemon/core/sessions/views.h"
#include "daemon/core/words/checkpoint.h"
#include "daemon/core/words/requests.h"
#include "daemon/core/words/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

struct Region;

/// One group of tenants that regions can be shared with.
struct Audience {
  Sharing sharing = Sharing::kPrivate;  ///< kPrivate: their owner, whomever else they are shared with
  TenantId owner;                       ///< the publisher; none: any, but for kPrivate and kGroup
  std::string reader{};                 ///< with kNamed: the tenant that is named

  auto operator<=>(const Audience&) const = default;
};

/// The regions by audience. The result of a search for some audiences, and its duration, do not depend on
/// regions of other audiences. So neither a listing nor a request for one region reveals anything of them.
/// docs/trust-boundary.md says what this protects.
class RegionAudiences {
 public:
  void add(const Region& region);
  void remove(const Region& region);
  /// Behind `after`, for any of the audiences, in the order of their ids, `most` of them.
  std::vector<RegionId> page(std::span<const Audience> audiences, RegionId after, std::size_t most) const;
  /// The newest of a name that is for any of the audiences, which name an owner; or that of a version. Of any
  /// device, if none is named. Nothing: there is none.
  struct Sought {
    std::string name;
    std::optional<DeviceIndex> device;
    std::uint64_t version = 0;  ///< 0: the newest
  };
  std::optional<RegionId> find(std::span<const Audience> audiences, const Sought& sought) const;

 private:
  using Name = std::pair<std::string, std::optional<DeviceIndex>>;  ///< of a device, and of all

  std::map<Audience, std::set<RegionId>> regions_;
  std::map<Audience, std::map<Name, std::set<RegionId>>> names_;  ///< for others than the owner
};

/// Named memory of a tenant that others map. Processes of that tenant may write to it, unless it is sealed.
/// Several may be of the same memory, all of them sealed or none.
struct Region {
  RegionId id;  ///< also its version: a later one of the same name has a higher one
  TenantId owner;
  std::string name;
  DeviceIndex device = 0;
  std::vector<LeaseId> leases;  ///< in the range's order
  Bytes offset;                 ///< of the range, in the leases one after the other
  Bytes bytes;
  Bytes layout;           ///< so many of its last bytes say what is in it; the broker does not read them
  LayoutDigest digest{};  ///< of the layout, as the publisher says
  Sharing sharing = Sharing::kPrivate;
  std::vector<std::string> readers;  ///< the tenants that are named
  TimePoint since{};
  TimePoint expires = TimePoint::max();
  bool kept = false;                  ///< the region outlives the processes that have its memory
  Duration linger = Duration::max();  ///< of a kept one, after the last process has left; max: for ever
  TimePoint left = TimePoint::max();  ///< of a kept one: when the last of them left; max: there is one
  bool sealed = false;                ///< nobody writes to it

  /// When its time is over, as it looks now; TimePoint::max(): never.
  TimePoint ends() const {
    const bool lingers = left != TimePoint::max() && linger < TimePoint::max() - left;
    return lingers ? std::min(expires, left + linger) : expires;
  }
};

/// For people: 'weights', version 3.
std::string words_of(const Region& region);
/// Returns the event, which is about the region.
Event& describe(const Region& region, Event& event);

/// The regions by owner, name and version. A region ends when it is removed or expires, and when its owner
/// has any of its leases no more. A kept one ends when nobody has had it for its time, too.
class Regions {
 public:
  static constexpr std::size_t kMostOfTenant = 16'384;
  /// Parts of all of a tenant's regions together: each lease is one, and takes some time at the end. A named
  /// reader, by which the region is found, takes as much memory as many.
  static constexpr std::size_t kMostParts = 65'536;
  static constexpr std::size_t kPartsOfReader = 8;
  static constexpr std::size_t kMostReaders = 8;  ///< that are named
  /// Kept ones that stand for one lease: each is looked at, and journaled, whenever it changes hands.
  static constexpr std::size_t kMostKeptOfLease = 64;
  static constexpr std::uint64_t kNewest = 0;  ///< as a version

  /// `outbox`  is told of each, for the next broker; outlives it.
  explicit Regions(Outbox& outbox) : outbox_(outbox) {}

  /// Gives it its id. Errors  kResourceExhausted: its owner, or for a kept one a lease, has as
  /// many as it may.
  Result<RegionId> add(Region region, TimePoint now);
  /// Of the broker before, with its id.
  void restore(Region region);
  /// Nothing: there is none (any more). One whose time is over is there until drop_expired().
  const Region* find(TenantId owner, const std::string& name, std::uint64_t version) const;
  /// The newest of those whose memory is of `device`. Nothing: as find().
  const Region* newest_on(DeviceIndex device, TenantId owner, const std::string& name) const;
  const Region& at(RegionId id) const { return regions_.at(id); }
  /// Nothing: there is none (any more).
  const Region* find(RegionId id) const {
    const auto found = regions_.find(id);
    return found == regions_.end() ? nullptr : &found->second;
  }
  /// Returns it.
  Region remove(RegionId id);
  /// The regions of `lease`. The reference is valid until the next change.
  const std::set<RegionId>& of(LeaseId lease) const { return found(by_lease_, lease); }
  /// Whether the regions of the lease are sealed: either all are, or none.
  bool is_sealed(LeaseId lease) const {
    const std::set<RegionId>& there = of(lease);
    return !there.empty() && at(*there.begin()).sealed;
  }
  /// The kept ones of them.
  const std::set<RegionId>& kept_of(LeaseId lease) const { return found(kept_by_lease_, lease); }
  /// Its memory is another tenant's now.
  void set_owner(RegionId id, TenantId owner);
  enum class Which { kAll, kNotKept };
  /// Ends those that stand for `lease`, and returns them.
  std::vector<Region> drop(LeaseId lease, Which which = Which::kAll);
  /// Whether a kept one stands for `lease`.
  bool keeps(LeaseId lease) const { return kept_by_lease_.contains(lease); }
  /// The holder or the users of the lease have changed.
  void note_change(LeaseId lease) {
    const std::set<RegionId>& kept = kept_of(lease);
    changed_.insert(kept.begin(), kept.end());
  }
  /// Kept regions of leases that note_change() has named since the last call.
  std::set<RegionId> take_changed() { return std::exchange(changed_, {}); }
  /// Of a kept one. `left`  max: some process has it.
  void set_left(RegionId id, TimePoint left);
  /// Ends the region with its memory from now on.
  void adopt(RegionId id);
  void keep(RegionId id, Duration linger);
  void restore_sealed(RegionId id) { regions_.at(id).sealed = true; }
  /// Ends some whose time is over, a bounded number, and returns them.
  std::vector<Region> drop_expired(TimePoint now);
  std::optional<TimePoint> next_expiry() const;
  /// Whether any stands for `lease`.
  bool has(LeaseId lease) const { return by_lease_.contains(lease); }
  /// Behind `after`, in the order of their ids, `most` of them; expired ones too.
  std::vector<const Region*> page(RegionId after, std::size_t most) const;
  /// A page of the regions that are shared with any of the audiences.
  std::vector<const Region*> page(std::span<const Audience> audiences, RegionId after,
                                  std::size_t most) const;
  /// The newest of those that are sought and for any of the audiences. Nothing: as RegionAudiences::find().
  const Region* find(std::span<const Audience> audiences, const RegionAudiences::Sought& sought) const {
    const auto found = audiences_.find(audiences, sought);
    return found ? &regions_.at(*found) : nullptr;
  }
  /// What a tenant has published of a device.
  RegionTotal total(TenantId owner, DeviceIndex device) const;
  void add_to(Checkpoint& checkpoint) const;
  /// Regions up to `id` were published before.
  void skip(RegionId id) { ids_.skip(id); }

 private:
  using Name = std::pair<TenantId, std::string>;
  struct Count {
    std::size_t regions = 0;
    std::size_t parts = 0;
  };
  using ByLease = boost::unordered_flat_map<LeaseId, std::set<RegionId>, std::hash<LeaseId>>;
  static const std::set<RegionId>& found(const ByLease& by_lease, LeaseId lease);
  static std::size_t parts_of(const Region& region) {
    return region.leases.size() + kPartsOfReader * region.readers.size();
  }
  Result<void> check_room(const Region& region) const;
  void put(Region region);
  Region take(RegionId id);

  Outbox& outbox_;
  IdSource<RegionId> ids_;
  std::map<RegionId, Region> regions_;
  std::map<Name, std::set<RegionId>> by_name_;
  std::map<std::pair<Name, DeviceIndex>, std::set<RegionId>> replicas_;  ///< by name and device
  ByLease by_lease_;
  ByLease kept_by_lease_;
  std::set<RegionId> changed_;
  std::set<std::pair<TimePoint, RegionId>> by_expiry_;  ///< only regions that expire
  RegionAudiences audiences_;
  std::map<TenantId, Count> count_of_;
  std::map<std::pair<TenantId, DeviceIndex>, RegionTotal> totals_;
};

Checkpoint::Region checkpoint_of(const Region& region);

}  // namespace gpumem::core
