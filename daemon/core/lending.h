#pragma once
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/explainer.h"
#include "daemon/core/handles.h"
#include "daemon/core/region_waits.h"
#include "daemon/core/regions.h"
#include "daemon/core/state.h"
#include "daemon/core/store.h"
#include "daemon/core/waiting_places.h"

namespace gpumem::core {

/// One extent of a range that is given out by fabric handles.
struct FabricPart {
  LeaseId lease;
  HandleBytes handle{};  ///< the driver's own: any process that may use an IMEX channel of it imports it
  Bytes size;            ///< of the extent: it is mapped as a whole
  Bytes offset;          ///< of the range, in the extent
  Bytes bytes;           ///< of the range
};
/// Errors  kInvalidArgument: no bytes, or not within `there`.
Result<void> check_range(Bytes offset, Bytes bytes, Bytes there);
/// The fabric handle of an extent; none: the driver gave none.
using FabricHandleOf = std::function<std::optional<HandleBytes>(ExtentId)>;

Checkpoint::Lease checkpoint_of(const Lease& lease);
Checkpoint::Slice checkpoint_of(const Slice& slice, SessionId session);

/// The way of memory: asked for, granted, brought together, offered, accepted, given back, proved free.
///
/// Invariants
///  - every lease is charged to its session's tenant, in the ledger, in exactly one state;
///  - every request is answered exactly once, unless it is cancelled or its session ends before;
///  - an extent that was lent never comes back into a pool;
///  - a lease that its session lets go of passes to a session that has imported it, and is freed after the
///  last; unless a kept region stands for it, which a custodian has then.
class Lending {
 public:
  /// Both outlive it.
  Lending(State& state, const Explainer& explainer);

  /// The size of a slice of the session with this limit; zero: as much as the device has.
  /// Errors  kInvalidArgument (more than the pool), kPermissionDenied (the tenant's limit is 0),
  ///         kResourceExhausted (too many slices).
  Result<Bytes> check_slice(const Session& session, DeviceIndex device, Bytes limit) const;
  Slice open_slice(Session& session, DeviceIndex device, Bytes limit, std::string label);
  /// Errors  kNotFound, kFailedPrecondition (holds leases or waits for some).
  Result<void> close_slice(Session& session, SliceId slice);

  /// As Broker's.
  /// As WaitingPlaces::keep_until.
  void keep_places_until(SessionId session, TimePoint until) { places_.keep_until(session, until); }
  std::optional<RequestId> place_kept(const Session& session, std::span<const GrowthPart> parts,
                                      TimePoint now);
  /// Lets the request join its queues, or refuses it at once. True: it waits, or will be granted.
  bool ask(RequestId id, Session& session, std::span<const GrowthPart> parts, Duration wait, TimePoint now);
  /// Tells that the request waits, if it still does; what may not wait is refused.
  void wait_or_refuse(RequestId id, TimePoint now);
  void cancel(RequestId id, TimePoint now);
  /// The answer to a growth has not reached its client.
  void abandon(GrantId grant, TimePoint now);
  Result<void> accept(SessionId session, GrantId grant);
  /// As Broker::answer_due.
  std::optional<TimePoint> answer_due(RequestId id) const;
  Result<void> give_back(Session& session, SliceId slice, std::span<const LeaseId> leases, TimePoint now);

  /// As Broker's.
  Result<void> export_handle(const Session& session, ExportHandle request, const HandleBytes& bytes,
                             TimePoint now);
  Result<std::vector<FabricPart>> export_fabric(Session& session, ExportHandle request,
                                                const FabricHandleOf& handle_of, TimePoint now);
  Result<void> revoke_handle(const Session& session, const HandleBytes& bytes);
  /// The handle, if the session may redeem it. Errors  as Broker::import_handle.
  Result<const Handle*> redeemable(const Session& session, const HandleBytes& bytes, TimePoint now) const;
  /// `handle`  is redeemable by the session; not to be used afterwards.
  Imported import_handle(const Session& session, const HandleBytes& bytes, const Handle& handle);
  /// As Broker's.
  Result<RegionId> publish(const Session& session, Publish request, TimePoint now);
  /// The region, if the session may map it. Errors  as Broker::map_region.
  Result<const Region*> mappable(const Session& session, const MapRegion& terms, TimePoint now);
  /// Whether sessions of the tenant may map the region, or could until now: its time may be over.
  bool is_shared_with(TenantId tenant, const MapRegion& terms) const;
  /// The newest version that the tenant may map, whether or not it is newer than the terms ask for.
  std::optional<RegionId> newest_for(TenantId tenant, const MapRegion& terms) const;
  /// `region`  is mappable by the session, which takes over what a custodian of its tenant has of it.
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
  /// Sessions that hold the region's leases: one, unless some leases were inherited.
  std::set<SessionId> holders_of(const Region& region) const;
  /// The bytes that each holder is charged for the region: its leases as a whole.
  std::map<SessionId, Bytes> charges_of(const Region& region) const;
  /// Ends the regions whose time is over.
  void drop_expired_regions(TimePoint now);
  /// Ends kept regions for what their custodians are asked for. True: some.
  bool give_up_kept(TimePoint now);
  const Regions& regions() const { return regions_; }
  Result<void> release_import(Session& session, ImportId import, TimePoint now);
  /// As Imports::remember_with.
  void remember_with(SessionId from, SessionId to);

  void refuse(const Request& request, const Refusal& refusal, TimePoint now);
  /// Takes a request that waits out of its queues and refuses it for what keeps it waiting.
  void refuse_waiting(RequestId id, TimePoint now);
  void answer(RequestId id, Error error);
  void refuse_expired(TimePoint now);
  /// The broker is stopping: answers all that waits. The next broker keeps their places.
  void leave_to_next();

  /// Brings everything on its way that can be, until memory is proved free: answers whose it was, since that
  /// can be the end of a tenant and of its guarantees. None: there is no more to do.
  std::vector<SessionId> progress(TimePoint now);
  void job_done(const JobResult& result, TimePoint now);

  /// The session's requests are dropped, its leases come back; or, if its process may still use them, stay
  /// quarantined until the process is gone.
  void end(Session& session, bool may_be_in_use, TimePoint now);
  /// The sessions are charged to other tenants from now on.
  void move(const std::map<SessionId, TenantId>& owners, TimePoint now);

  // After another broker. Before anything else, in this order.
  /// The numbers up to these were given out before.
  void skip(const Checkpoint::Numbers& last);
  /// `lent`  bytes of the device are not to be created: they are lent. At most its pool.
  void adopt(DeviceIndex device, Bytes lent);
  void restore(Session& session, const Checkpoint::Slice& from, DeviceIndex device);
  /// Charges the lease, whatever the limits. Of a session that has ended, it may be in use still.
  /// `kept`  its descriptor is at hand. Returns its extent, which has no id if it is not.
  Extent restore(Session& session, const Checkpoint::Lease& from, DeviceIndex device, bool kept);
  void restore(const Checkpoint::Import& from);
  /// After imports. `session`  is known.
  void restore_suspect(LeaseId lease, SessionId session);
  void restore(const Checkpoint::Waiting& from) { places_.restore(from); }
  /// After the leases. What cannot be redeemed any more is left out.
  void restore(const Checkpoint::Handle& from, DeviceIndex device, TimePoint now);
  /// The same.
  void restore(const Checkpoint::Region& from, DeviceIndex device, TimePoint now);
  void restore(const Checkpoint::RegionSealed& from);
  /// Errors  kPermissionDenied: something in the claim is not the session's.
  Result<void> check_claim(const Session& session, const Claim& claim) const;
  /// The client has what it claims, and nothing else. The claim is the session's.
  void settle_claim(Session& session, const Claim& claim, TimePoint now);
  void add_to(Checkpoint& checkpoint) const;

  const Store& store(DeviceIndex device) const { return stores_[device]; }
  std::optional<TimePoint> next_deadline() const;
  bool settled() const;

 private:
  bool join(Request request, TimePoint now);
  Result<void> check_room(const Request& request) const;
  Result<Bytes> check_exported(const Session& session, SliceId slice, std::span<const LeaseId> leases) const;
  Result<void> check_descriptors(std::span<const LeaseId> leases) const;
  Result<void> check_importer(const Session& session, const Session& holder) const;
  Result<void> check_sealing(std::span<const LeaseId> leases, const Publish& terms) const;
  bool may_map(TenantId tenant, const Region& region) const;
  const Region* find(TenantId owner, const MapRegion& terms) const;
  const Region* find_for(TenantId tenant, const MapRegion& terms) const;
  Result<void> check_mapping(const Session& session, const Region& region) const;
  Imported import(const Session& session, DeviceIndex device, const std::vector<LeaseId>& leases,
                  Bytes offset, Bytes bytes);
  Result<void> check_fabric(const Session& session, DeviceIndex device,
                            const std::vector<FabricPart>& parts) const;
  Bytes given_by_fabric(TenantId tenant, DeviceIndex device) const;
  void give_by_fabric(Session& session, Lease& lease);
  Result<Request::Parts> parts_of(const Session& session, std::span<const GrowthPart> parts) const;
  Result<Request::Part> part_of(const Session& session, const GrowthPart& part) const;
  TimePoint deadline_of(const Request& request, TimePoint now) const;
  void begin(Granted granted, TimePoint now);
  void undo(const Assembly& assembly);
  bool advance(DeviceIndex device, TimePoint now, std::vector<SessionId>& freed);
  void assembled(DeviceIndex device, Store::Progress::Assembly&& one);
  void unobtainable(DeviceIndex device, RequestId id);
  void deliver(Assembly assembly);
  SessionId unproved(LeaseId id, TimePoint now);
  void set_state(Lease& lease, Charge state);
  void let_go(Lease& lease, TimePoint now);
  void drop_regions(const Lease& lease, Regions::Which which, TimePoint now);
  Region remove(RegionId id, TimePoint now);
  bool keeps(const Lease& lease) const { return !lease.fabric && regions_.keeps(lease.id); }
  Session& custodian_for(const Session& holder, TimePoint now);
  void let_go_unkept(const Region& removed, TimePoint now);
  bool has_left(const Region& region) const;
  void note_use(LeaseId lease);
  void note_suspect(SessionId session, std::span<const LeaseId> leases);
  void note_left(TimePoint now);
  bool give_up_kept(const Session& custodian, DeviceIndex device, const ReclaimRequest& request,
                    TimePoint now);
  void move(Session& session, TenantId to);
  std::vector<Region> move_regions(const std::map<SessionId, TenantId>& owners, TimePoint now);
  void pass_unproved(Lease& lease);
  void prove_anew(Lease& lease, TimePoint now);
  Session* successor_of(const Lease& lease);
  void pass(Lease& lease, Session& successor);
  void take_back(Lease& lease);
  void freed(LeaseId id, TimePoint now, std::vector<SessionId>& freed_of);
  Slice* slice_of(Session& session, SliceId slice);
  Lease& lease(LeaseId id) { return *leases_.at(id); }
  const Lease& lease(LeaseId id) const { return *leases_.at(id); }

  State& state_;
  const Explainer& explainer_;
  IdSource<ExtentId> extent_ids_;
  IdSource<JobId> job_ids_;
  IdSource<SliceId> slice_ids_;
  IdSource<LeaseId> lease_ids_;
  IdSource<GrantId> grant_ids_;
  std::vector<Store> stores_;
  boost::unordered_flat_map<LeaseId, std::unique_ptr<Lease>, std::hash<LeaseId>> leases_;
  Handles handles_;
  Regions regions_;
  std::set<RegionId> changed_hands_;  ///< kept ones: who has them, or uses them, may be another
  /// Custodians that have been asked for memory of a device, by force or not, and had none that may go.
  std::set<std::tuple<SessionId, DeviceIndex, bool>> nothing_to_give_up_;
  WaitingPlaces places_;
  std::unordered_map<GrantId, std::vector<LeaseId>> offered_;  ///< not yet accepted
  std::unordered_map<RequestId, Assembly> assemblies_;         ///< charged, being brought together
};

}  // namespace gpumem::core
