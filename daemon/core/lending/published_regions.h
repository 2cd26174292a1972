#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/lending/leases.h"
#include "daemon/core/lending/region_waits.h"
#include "daemon/core/words/requests.h"

namespace gpumem::core {

/// Named memory that sessions of other tenants map, too: who may map it, and when it ends. Events of the
/// Broker that have the same names have their contracts there.
class PublishedRegions {
 public:
  /// All outlive it.
  PublishedRegions(State& state, Leases& leases, Handles& handles, Regions& regions)
      : state_(state), leases_(leases), handles_(handles), regions_(regions) {}

  Result<RegionId> publish(const Session& session, Publish request, TimePoint now);
  /// The region, if the session may map it. Errors  as Broker::map_region.
  Result<const Region*> mappable(const Session& session, const MapRegion& terms, TimePoint now);
  /// Whether sessions of the tenant may map the region, or could until now: its time may be over.
  bool is_shared_with(TenantId tenant, const MapRegion& terms) const;
  /// The newest version that the tenant may map, whether or not it is newer than the terms ask for.
  const Region* find_for(TenantId tenant, const MapRegion& terms) const;
  /// `region`  is mappable by the session, which takes over what a detached session of its tenant has of it.
  Imported map_region(Session& session, const Region& region, TimePoint now);
  /// Whether the session may make the region its own: nobody else has it.
  /// Errors  kPermissionDenied (another tenant's), kFailedPrecondition (not kept; a process has it).
  Result<void> check_adoption(const Session& session, const Region& region) const;
  /// Whether the session may write to the region. Errors  kPermissionDenied (another tenant's),
  /// kFailedPrecondition (it is sealed).
  Result<void> check_writing(const Session& session, const Region& region) const;
  /// Ends the region with its memory from now on. `id`  has been mapped by the session that adopts it.
  void adopt_region(RegionId id) { regions_.adopt(id); }
  /// Keeps the region beyond its processes. No effect if it has ended.
  void keep_again(RegionId id, Duration linger) {
    if (regions_.find(id) != nullptr) regions_.keep(id, linger);
  }
  Result<void> remove_region(const Session& session, const std::string& name, std::uint64_t version,
                             TimePoint now);
  /// Ends a region of any tenant.
  Result<void> remove_region_of(const std::string& owner, const std::string& name, std::uint64_t version,
                                TimePoint now);
  /// The sessions that hold the region's leases, and the bytes that each is charged for them as a whole.
  /// There is one holder, unless some leases were inherited.
  std::map<SessionId, Bytes> holders_of(const Region& region) const;
  /// Ends some of the regions whose time is over. The others end at the next deadline, which has come.
  void drop_expired(TimePoint now);
  /// Sets when the last process has left each kept region whose holders or users have changed.
  void note_left(TimePoint now);
  /// Ends kept regions for what the detached sessions are asked for. True: some.
  bool give_up_kept(TimePoint now);
  /// A region goes along with its memory, before the sessions move to `owners`. It ends if the holders of its
  /// leases come to belong to several tenants: no tenant gets the name, and the bytes, of another. Returns
  /// those that end, whose memory is the caller's to let go.
  std::vector<Region> move(const std::map<SessionId, TenantId>& owners, TimePoint now);
  const Regions& regions() const { return regions_; }

  /// After another broker, and after the leases. A region that cannot be mapped any more is left out.
  void restore(const Checkpoint::Region& from, DeviceIndex device, TimePoint now);
  void restore(const Checkpoint::RegionSealed& from) {
    if (regions_.find(from.id) != nullptr) regions_.restore_sealed(from.id);
  }
  void skip(const Checkpoint::Numbers& last) { regions_.skip(last.region); }
  void add_to(Checkpoint& checkpoint) const { regions_.add_to(checkpoint); }

 private:
  Result<void> check_sealing(std::span<const LeaseId> leases, const Publish& terms) const;
  const Region* find(TenantId owner, const MapRegion& terms) const;
  // The region that `find` finds, or the next one that it finds if the time of the first is over.
  template <class Find>
  const Region* find_unexpired(Find find, TimePoint now);
  void note_expired(const Region& removed, TimePoint now);
  Region remove(RegionId id, TimePoint now);
  bool give_up_kept(const Session& detached, DeviceIndex device, const ReclaimRequest& request,
                    TimePoint now);

  State& state_;
  Leases& leases_;
  Handles& handles_;
  Regions& regions_;
  /// Detached sessions that have been asked for memory of a device, by force or not, and had none that may
  /// go.
  std::set<std::tuple<SessionId, DeviceIndex, bool>> nothing_to_give_up_;
};

}  // namespace gpumem::core
