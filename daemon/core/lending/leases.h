#pragma once
#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/lending/regions.h"
#include "daemon/core/memory/store.h"
#include "daemon/core/sessions/imports.h"
#include "daemon/core/sessions/state.h"

namespace gpumem::core {

/// Errors  kInvalidArgument: no bytes, or not within `there`.
Result<void> check_range(Bytes offset, Bytes bytes, Bytes there);

/// Slices and the leases in them: offered, accepted, shared, given back, proved free.
///
/// Invariants
///  - Every lease is charged to its session's tenant, in the ledger, in exactly one state.
///  - An extent that was lent never comes back into a pool.
///  - A lease that its session lets go of passes to a session that has imported it. Without such a session it
///    passes to a detached session if a kept region stands for it, and else is freed.
class Leases {
 public:
  /// All outlive it. A handle or a region ends with a lease that it stands for.
  Leases(State& state, Handles& handles, Regions& regions);

  /// The size of a slice of the session with this limit; zero: as much as the device has.
  /// Errors  kInvalidArgument (more than the pool), kPermissionDenied (the tenant's limit is 0),
  ///         kResourceExhausted (too many slices).
  Result<Bytes> check_slice(const Session& session, DeviceIndex device, Bytes limit) const;
  Slice open_slice(Session& session, DeviceIndex device, Bytes limit, const OpenSlice& request);
  /// Errors  kNotFound, kFailedPrecondition (holds leases or waits for some).
  Result<void> close_slice(Session& session, SliceId slice);

  /// Lends the extents, which are all there, to the session that has asked for them.
  Grant offer(const Assembly& assembly);
  /// The answer to a growth has not reached its client.
  void abandon(GrantId grant, TimePoint now);
  Result<void> accept(SessionId session, GrantId grant);
  Result<void> give_back(Session& session, SliceId slice, std::span<const LeaseId> leases, TimePoint now);
  /// The store has proved the memory free. Adds the sessions that may have nothing left to `freed_of`.
  void freed(LeaseId id, TimePoint now, std::vector<SessionId>& freed_of);
  /// The store has tried in vain to prove the memory free. Returns the session that gave it back.
  SessionId unproved(LeaseId id, TimePoint now);
  /// The memory past the broker is known anew: proofs may fail for that, without anybody's fault.
  void observed(DeviceIndex device);
  /// The session's leases come back; or, if its process may still use them, stay quarantined until the
  /// process is gone.
  void end(Session& session, bool may_be_in_use, TimePoint now);

  /// The lease is known.
  const Lease& at(LeaseId id) const { return *leases_.at(id); }
  /// None: its memory is free.
  const Lease* find(LeaseId id) const {
    const auto found = leases_.find(id);
    return found == leases_.end() ? nullptr : found->second.get();
  }

  /// The bytes of the leases, if other sessions can get them. Errors  kInvalidArgument (none, or too many),
  /// kNotFound (not active leases of the slice), kFailedPrecondition (their descriptors are not at hand).
  Result<Bytes> check_exported(const Session& session, SliceId slice, std::span<const LeaseId> leases) const;
  /// Errors  kFailedPrecondition: their descriptors are not at hand.
  Result<void> check_descriptors(std::span<const LeaseId> leases) const;
  /// Errors  kFailedPrecondition: some of them were given out by fabric handles.
  Result<void> check_no_fabric(std::span<const LeaseId> leases) const;
  /// Whether the session may import leases of `holder`.
  /// Errors  kPermissionDenied (the broker cannot end it), kResourceExhausted (too many imports).
  Result<void> check_importer(const Session& session, const Session& holder) const;
  /// The session uses the leases from now on. A detached session of its tenant passes its leases to it.
  Imported import(Session& session, DeviceIndex device, const std::vector<LeaseId>& leases, Bytes offset,
                  Bytes bytes);
  Result<void> release_import(Session& session, ImportId import, TimePoint now);
  /// As Imports::remember_with.
  void remember_with(SessionId from, SessionId to);
  /// A fabric handle stands for the lease from now on.
  void give_by_fabric(LeaseId id);
  /// Takes the leases back that a detached session had for this region alone, which has ended. Readers of
  /// other tenants are charged for what they keep.
  void let_go_unkept(const Region& removed, TimePoint now);
  /// The session has another tenant: what nobody answers for counts as that tenant's.
  void follow(Session& session);
  /// As Broker::end_some_regions(): before end(), before give_back(), before release_import().
  bool end_some_regions(const Session& session, TimePoint now);
  bool end_some_regions(const Session& session, SliceId slice, std::span<const LeaseId> leases,
                        TimePoint now);
  bool end_some_regions(const Session& session, ImportId import, TimePoint now);

  Store& store(DeviceIndex device) { return stores_[device]; }
  const Store& store(DeviceIndex device) const { return stores_[device]; }
  /// Whether a kept region has the lease's memory.
  bool keeps(const Lease& lease) const { return !lease.fabric && regions_.keeps(lease.id); }
  /// The deadline of the stores.
  std::optional<TimePoint> next_deadline() const;
  /// Every store is settled.
  bool settled() const;

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
  /// Errors  kPermissionDenied: something in the claim is not the session's.
  Result<void> check_inventory(const Session& session, const Inventory& inventory) const;
  /// The client has what it claims, and nothing else. The claim is the session's.
  void settle_inventory(Session& session, const Inventory& inventory, TimePoint now);
  /// Slices, leases and imports.
  void add_to(Checkpoint& checkpoint) const;

 private:
  Lease& lease(LeaseId id) { return *leases_.at(id); }
  Lease& put(std::unique_ptr<Lease> made);
  void set_state(Lease& lease, Charge state);
  void let_go(Lease& lease, TimePoint now);
  /// `only_user`  as for Store::take_back().
  void take_back(Lease& lease, SessionId only_user);
  bool is_promised(const Lease& lease) const;
  void prove_anew(Lease& lease, TimePoint now);
  void count_unanswered(Lease& lease, TenantId tenant);
  void tell_unanswered(TenantId tenant, DeviceIndex device);
  void share(const Lease& lease);
  Session& detached_session_for(const Session& holder, TimePoint now);
  Session* successor_of(const Lease& lease);
  // The bytes of the leases. Errors  as give_back().
  Result<Bytes> check_returned(const Session& session, SliceId slice, std::span<const LeaseId> leases) const;
  // Whether the imports that a lease's own session has of it go on.
  enum class OwnImports { kStay, kEnd };
  bool has_mate(const Lease& lease, OwnImports own) const;
  void end_some_of(const Lease& lease, OwnImports own, std::size_t& left, TimePoint now);
  bool end_some_of(const Session& session, std::span<const LeaseId> leases, OwnImports own, TimePoint now);
  void pass(Lease& lease, Session& successor);
  void note_suspect(SessionId session, std::span<const LeaseId> leases);

  State& state_;
  /// By device: memory that is not free although the process is gone that was lent it.
  std::vector<std::map<TenantId, Bytes>> unanswered_;
  Handles& handles_;
  Regions& regions_;
  IdSource<ExtentId> extent_ids_;
  IdSource<JobId> job_ids_;
  IdSource<SliceId> slice_ids_;
  IdSource<LeaseId> lease_ids_;
  IdSource<GrantId> grant_ids_;
  std::vector<Store> stores_;
  boost::unordered_flat_map<LeaseId, std::unique_ptr<Lease>, std::hash<LeaseId>> leases_;
  std::unordered_map<GrantId, std::vector<LeaseId>> offered_;  ///< not yet accepted
};

}  // namespace gpumem::core
