#pragma once
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/broker/explanation_limit.h"
#include "daemon/core/broker/listings.h"
#include "daemon/core/broker/sharer.h"
#include "daemon/core/lending/exports.h"
#include "daemon/core/lending/growths.h"
#include "daemon/core/lending/published_regions.h"
#include "daemon/core/reclaim/explainer.h"
#include "daemon/core/reclaim/reclaimer.h"
#include "daemon/core/reclaim/reservations.h"
#include "daemon/core/sessions/outside.h"
#include "daemon/core/sessions/state.h"
#include "daemon/core/sessions/unmanaged.h"
#include "daemon/core/sessions/usage_meters.h"
#include "daemon/core/sessions/views.h"
#include "daemon/core/words/observation.h"
#include "daemon/core/words/requests.h"
#include "shm/device_page.h"
#include "shm/pages.h"

namespace gpumem::core {

/// How a session came to its end.
enum class SessionEnd {
  kReleased,  ///< the client has unmapped everything, as far as it says, or closed the lane and lives on
  kLost,      ///< the broker has cut the lane: what the process has mapped stays mapped while it lives
  kExited,    ///< the process is gone
};

/// An extent of the broker before whose descriptor is at hand, by its new number.
struct RestoredExtent {
  LeaseId lease;
  DeviceIndex device = 0;
  Extent extent;
};

/// What a broker has taken over.
struct Restored {
  /// Sessions whose processes may still use memory. The host watches the processes.
  std::vector<RestoredSession> sessions;
  std::vector<RestoredExtent> extents;
  /// Of the requests whose places are kept, the last.
  RequestId last_request;
};

/// The entry to the broker's decisions: events in, effects out. It passes each event to the part that is
/// responsible, and collects the effects. No clock, no I/O, no threads: `now` comes with the events, effects
/// are taken from the outbox after each of them and done by the host. Threads  one.
class Broker {
 public:
  /// `policy`  checked by check(policy).
  explicit Broker(Policy policy);

  /// Errors  kInvalidArgument (label), kPermissionDenied (no tenant), kResourceExhausted (too many sessions;
  ///         no room for the guarantee).
  /// `job`  the session joins it, if the peer may; job_of() tells. Zero: none.
  /// `is_admin`  the peer is an administrator.
  Result<SessionId> open_session(const Peer& peer, std::string label, TimePoint now, CommandJobId job = {},
                                 bool is_admin = false);
  /// The session is known.
  CommandJobId job_of(SessionId session) const { return state_.session(session).job; }
  /// Takes over what the broker before has lent. Once, before anything else. `devices`  UUIDs by the
  /// checkpoint's places; those that are lent have pools with room for what is lent of them. What is of
  /// others is left out. `kept`  leases whose descriptors are at hand: they can be handed on.
  Restored restore(const Checkpoint& from, const std::vector<std::string>& devices,
                   const std::set<LeaseId>& kept, TimePoint now);
  /// No journal tells which jobs there were: numbers up to `last` are not given to new ones.
  void number_jobs_after(CommandJobId last) { jobs_.skip(last); }
  /// A client has come back to a session that is awaited, with its inventory. Memory that is not in it comes
  /// back. Errors  kNotFound: no such session is awaited; kPermissionDenied: the inventory has something
  ///         that is not the session's, which is awaited further.
  Result<void> resume(SessionId session, const Inventory& inventory, TimePoint now);
  bool awaits(SessionId session) const;
  /// Whether the session has no leases and no imports.
  bool holds_nothing(SessionId session) const;
  /// How many entries an inventory of the session can have at most.
  std::size_t most_in_inventory(SessionId session) const;
  /// Everything that restore() needs.
  Checkpoint checkpoint() const;
  /// The outcome of every event so far: to be taken after each.
  Outbox& outbox() { return state_.outbox; }

  /// The lane is gone. Requests that wait are dropped. Leases come back now or, after kLost, when exited()
  /// says so. Unknown sessions are ignored.
  void session_ended(SessionId session, SessionEnd end, TimePoint now);
  /// The process is gone, and with it every mapping of its own.
  void exited(SessionId session, TimePoint now) { session_ended(session, SessionEnd::kExited, now); }
  /// Before a session ends, gives leases back or releases an import: ends some of the regions that end with
  /// that, a bounded number. False: there are none, or the request is refused.
  bool end_some_regions(SessionId session, TimePoint now);
  bool end_some_regions(SessionId session, const Return& request, TimePoint now);
  bool end_some_regions(SessionId session, const ReleaseImport& request, TimePoint now);

  // Requests of sessions. Errors of each, too: those of check(), and kUnauthenticated (no such session).

  /// Answers the slice. Errors  kNotFound (device), kInvalidArgument (more than the pool), kResourceExhausted
  ///         (too many slices), kPermissionDenied (the tenant's limit is 0).
  Result<Slice> open_slice(SessionId session, const OpenSlice& request);
  /// Errors  kNotFound, kFailedPrecondition (holds leases or waits for some).
  Result<void> close_slice(SessionId session, const CloseSlice& request, TimePoint now);
  /// Asks for memory for one slice, or for several of different devices, all or nothing. Answered by one
  /// AnswerGrow effect.
  /// `id`  larger than that of every request before, and than Restored::last_request; or place_kept().
  void grow(RequestId id, SessionId session, const Grow& request, TimePoint now);
  /// The id, and with it the place, of a request for the same that waited at the broker before, and has not
  /// been asked again. To be used in grow(), at once.
  std::optional<RequestId> place_kept(SessionId session, const Grow& request, TimePoint now);
  /// When a request that is not answered yet will be; TimePoint::max(): once the driver has made the memory.
  std::optional<TimePoint> answer_due(RequestId id) const { return growths_.answer_due(id); }
  /// Makes a job of the session's. Errors  kFailedPrecondition (it has one, or is in one).
  Result<JobBegun> begin_job(SessionId session, const BeginJob& request, TimePoint now);
  /// Undoes begin_job(), as if it had not been requested.
  void call_off_job(SessionId session, TimePoint now);
  /// Reserves memory for the session's job: as grow(), answered by a grant of nothing.
  void reserve_for_job(RequestId id, SessionId session, const ReserveForJob& request, TimePoint now);
  std::optional<RequestId> place_kept(SessionId session, const ReserveForJob& request, TimePoint now);
  /// The session's process is about to make a context. Answered by a grant of nothing when the driver has
  /// memory for it. `id`  larger than that of every request before.
  void announce_context(RequestId id, SessionId session, const AnnounceContext& request, TimePoint now);
  /// An announced context is made, or has failed. No effect if none was announced.
  void context_done(SessionId session, const ContextDone& request, TimePoint now);
  /// Errors  kNotFound: the session has no job.
  Result<JobAccount> job_account(SessionId session);
  /// Withdraws a request. Granted meanwhile: the leases come back as soon as the client lets go of them.
  void cancel(RequestId id, TimePoint now);
  /// The answer to a growth has not reached its client: what was not accepted of the grant comes back as
  /// soon as the client lets go of it. Unknown grants are ignored.
  void abandon(GrantId grant, TimePoint now);
  /// The client has mapped all of the grant. Errors  kNotFound.
  Result<void> accept(SessionId session, GrantId grant) { return leases_.accept(session, grant); }
  /// The client has let go of the leases. All or nothing. Errors  kNotFound: not leases of this slice.
  Result<void> give_back(SessionId session, const Return& request, TimePoint now);

  /// `handle`  as of new_handle().
  /// Errors  kNotFound (slice, leases), kInvalidArgument (range, time, uses), kResourceExhausted (too many).
  Result<HandleExported> export_handle(SessionId session, const ExportHandle& request,
                                       const HandleBytes& handle, TimePoint now);
  /// Gives the extents of a range of the slice's memory out by fabric handles: any process that gets one may
  /// map its extent, and keep it, without the broker's knowledge. They are charged to the session's tenant
  /// until the driver proves them free. Nobody is asked for them; what one tenant gives out so is within its
  /// guarantee. Only leases that the range touches are given out.
  /// Errors  kNotFound, kInvalidArgument (as export_handle(); a life or uses: nobody can take such a handle
  ///         back), kFailedPrecondition (none on this device; imported by an IPC handle), kPermissionDenied
  ///         (not allowed to this tenant), kResourceExhausted (beyond its guarantee), kUnavailable (the
  ///         memory is asked back).
  Result<std::vector<FabricPart>> export_fabric(SessionId session, const ExportHandle& request,
                                                const FabricHandleOf& handle_of, TimePoint now);
  /// Nobody can redeem the handle from now on. What it was redeemed for stays.
  /// Errors  kNotFound (no such handle of the session's).
  Result<void> revoke_handle(SessionId session, const RevokeHandle& request);
  /// The session uses the handle's memory from now on, too, until release_import(). Memory that its session
  /// lets go of is charged to one that uses it.
  /// Errors  kNotFound (no such handle of the session's tenant), kUnavailable (the memory is asked back, or
  ///         the broker is stopping), kResourceExhausted (too many imports, no room for a context),
  ///         kPermissionDenied (a process that could not be ended).
  Result<Imported> import_handle(SessionId session, const ImportHandle& request, TimePoint now);
  /// Names a range of the slice's memory, whose content does not change any more, for others to map. It stays
  /// charged to the session's tenant. Answers its version.
  /// Errors  as export_handle(); kResourceExhausted (too many regions of the tenant).
  Result<RegionId> publish(SessionId session, const Publish& request, TimePoint now);
  /// The session uses the region's memory from now on, too, until release_import(): as import_handle().
  /// Does not wait. Errors  kNotFound (no such region that is shared with the session's tenant; device);
  /// others as import_handle(). As its owner, errors too: kPermissionDenied (another tenant's),
  /// kFailedPrecondition (it is not kept, or a process has it).
  Result<MappedRegion> map_region(SessionId session, const MapRegion& request, TimePoint now);
  /// Undoes a mapping, as if it had not been requested.
  void take_back(SessionId session, const MappedRegion& mapped, TimePoint now);
  /// As map_region(); if there is no such region, waits for one to be published. Answered by one AnswerMap
  /// effect, unless it is cancelled or the session ends. If the request reserves, the first session that asks
  /// is given the reservation. The others wait for the region. If the reservation ends without it, one of
  /// them is given the next. `id`  as of grow(). Errors  too: kDeadlineExceeded (waited in vain),
  /// kResourceExhausted (the session waits for too many, or has reserved too many), kInvalidArgument (waits
  /// for a certain version).
  void map_or_wait(RequestId id, SessionId session, const MapRegion& request, TimePoint now);
  /// Until when a request for a region waits; nothing: it does not.
  std::optional<TimePoint> region_due(RequestId id) const { return sharer_.due(id); }
  /// The session does not publish what it has reserved. Errors  kNotFound: it has published it, or the
  /// reservation has ended.
  Result<void> release_reservation(SessionId session, const ReleaseReservation& request, TimePoint now);
  /// Releases the reservation that a cancelled request had already received. No effect if there is none.
  /// `number`  of that request.
  void call_off_reservation(SessionId session, std::uint64_t number, TimePoint now);
  /// Ends a region of the session's tenant: it cannot be mapped any more. Existing mappings stay.
  /// Errors  kNotFound.
  Result<void> remove_region(SessionId session, const RemoveRegion& request, TimePoint now);
  /// Ends a region of any tenant, for an administrator. Errors  kNotFound.
  Result<void> remove_region_of(const std::string& owner, const RemoveRegion& request, TimePoint now);
  /// The session has unmapped and released the memory. Errors  kNotFound.
  Result<void> release_import(SessionId session, const ReleaseImport& request, TimePoint now);

  /// The person who asks for something to be done to a session.
  struct Requester {
    const Peer& peer;
    bool is_admin = false;
  };
  /// Has the session's process sent SIGTERM, once. Errors  kNotFound; kPermissionDenied (neither its user nor
  ///         an administrator); kFailedPrecondition (it has no process, or one that cannot be signalled).
  Result<void> end_by_request(SessionId session, const Requester& by, TimePoint now);
  /// As above, the process that owns the job; without one, those of all its sessions.
  Result<void> end_by_request(CommandJobId job, const Requester& by, TimePoint now);

  struct AskedBack {
    Bytes bytes;  ///< no more than it has
    Duration within{};
  };
  /// Asks a session to give memory of the device back, as pressure does; nothing follows if it does not.
  /// Errors  kNotFound (session, device); kPermissionDenied; kFailedPrecondition (it has nothing of the
  ///         device, or cannot be asked).
  Result<AskedBack> ask_back(SessionId session, const std::string& device, Bytes bytes, const Requester& by,
                             TimePoint now);

  /// Declares what the session's process holds of a device past the broker, in place of what was declared
  /// before. Errors  kNotFound (device), kInvalidArgument (more than the device has).
  Result<void> charge(SessionId session, const DeclareCharge& request, TimePoint now);
  /// Asks others for the memory that the session was asked for, at the next event or deadline, which is now.
  /// Errors  kNotFound (device).
  Result<void> spent(SessionId session, const Spent& request, TimePoint now);
  /// The session itself, with its slices. Errors  kNotFound: it has ended.
  Result<SessionView> describe(SessionId session) const;
  /// How its tenant stands, and what the requests of the tenant, and of those that belong to it, wait for.
  /// Errors  kNotFound (it has ended), kResourceExhausted (as count_explanation()).
  Result<Explanation> explain(SessionId session, TimePoint now);

  /// The driver is about to be asked what observe() will be told. What comes back in between may still be in
  /// its figures.
  void begin_observation(DeviceIndex device);
  /// Takes the driver's figures of a device's memory.
  void observe(const Observation& observation, TimePoint now);

  /// To be called in place of sending a signal that may wait (SignalSession): unread requests of the session
  /// may return its memory. The effect comes again after Terminations::kReadingTime, unless they have.
  void hold_signal(SessionId session, TimePoint now) { reclaimer_.hold_signal(session, now); }

  void job_done(const JobResult& result, TimePoint now);
  /// Time has passed: to be called at next_deadline().
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  /// Puts another policy in force, all or nothing: quotas, tenants, numbers; not the devices. `cause`: who
  /// changed what, for those who watch.
  /// Errors  kInvalidArgument, kFailedPrecondition (other devices or pools: needs a restart).
  Result<void> apply(Policy policy, TimePoint now, std::string cause = {});

  /// A display was connected to the device, or none is any more. True: its pool becomes elastic by that, or
  /// whole.
  bool set_display(DeviceIndex device, bool has_display, TimePoint now);

  /// Refuses everything that waits, and from now on every session and request.
  void drain();
  /// Refuses every new session and growth with these words, until go_on_lending().
  void stop_lending(std::string why) { state_.stopped_lending = std::move(why); }
  void go_on_lending() { state_.stopped_lending.clear(); }
  const std::string& stopped_lending() const { return state_.stopped_lending; }
  /// Every device has its pool, as far as the driver gives it, and its stock.
  bool settled() const { return leases_.settled(); }
  /// Bytes of the pool that the driver does not give, though not for the contexts of sessions.
  Bytes missing(DeviceIndex device) const { return state_.missing_besides_contexts(device); }

  /// Without the quotas of its tenants: tenants() has them.
  const Policy& policy() const { return state_.policy; }
  bool knows(SessionId session) const;
  /// The session is known.
  const std::string& tenant_name(SessionId session) const;
  /// Nothing, if there is no such lease.
  std::optional<LeaseStanding> standing_of(LeaseId lease) const;
  /// Nothing, if the session is not known.
  std::optional<std::string> tenant_of(SessionId session) const;
  /// How a user without a tenant would stand; as Explainer::explain_newcomer().
  Result<Explanation> explain_newcomer(std::uint32_t uid) const { return explainer_.explain_newcomer(uid); }
  bool has_tenant(const std::string& name) const { return state_.tenants.find(name) != nullptr; }
  BrokerFigures figures(SessionId session) const;
  /// Lists the processes that are charged for memory of the device, and its idle memory, for monitors.
  /// `listing`  the broker's pid, the namespace, and entries beyond `process_count` stay as they were.
  void list(DeviceIndex device, DeviceListing& listing) const;
  /// Another number than before: figures may have changed, of any session.
  std::uint64_t figures_revision() const { return state_.ledger.revision() + generation_; }
  /// Likewise, of the device's listing.
  std::uint64_t figures_revision(DeviceIndex device) const { return state_.ledger.revision(device); }
  const Reconciliation& reconciliation(DeviceIndex device) const { return unmanaged_.view(device); }
  /// Memory of others, as last seen, for which proofs may fail.
  Bytes hindrance(DeviceIndex device) const { return state_.hinders_proofs[device]; }
  /// Counts one more explanation for a user. Errors  as ExplanationLimit::add.
  Result<void> count_explanation(std::uint64_t account, TimePoint now) {
    return explanations_.add(account, now);
  }
  /// Errors  kNotFound. `everything`: other tenants by name too.
  Result<Explanation> explain_session(SessionId session, bool everything, TimePoint now) const;
  Result<Explanation> explain_tenant(const std::string& tenant, bool everything, TimePoint now) const;
  /// Whether `tenant` is `of`, or belongs to it; false for unknown ones.
  bool belongs(const std::string& tenant, const std::string& of) const;

  // Listings. A listing that clients can make long comes in pages: entries behind `after`, at most so many.
  static constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  std::size_t session_count() const { return state_.sessions.size(); }
  std::vector<DeviceView> devices() const;
  /// In the order of their names. One tenant has a view for each device.
  std::vector<TenantView> tenants(const std::string& after = {}, std::size_t most_tenants = kAll) const;
  /// The accounts of tenants, also of those that are gone: as UsageMeters::usage().
  UsagePage usage(const std::optional<std::string>& after, std::size_t most, TimePoint now) const {
    return usage_.usage(after, most, now);
  }
  /// In the order they began.
  std::vector<JobView> jobs(CommandJobId after = {}, std::size_t most = kAll) const;
  /// In the order they came. A page ends with the session whose slices exceed `most_slices`.
  std::vector<SessionView> sessions(SessionId after = {}, std::size_t most_slices = kAll) const;
  /// Requests that wait, in the order they came; as Explainer::waiting().
  WaitingPage waiting(RequestId after, std::size_t most, const Explainer::IsWanted& is_wanted,
                      TimePoint now) const {
    return explainer_.waiting(after, most, is_wanted, now);
  }
  /// In the order of their versions, those that `viewer` may see. `owner`  only this tenant's; empty: all.
  RegionPage regions(const RegionViewer& viewer, const std::string& owner, TimePoint now, RegionId after = {},
                     std::size_t most = kAll) const;

 private:
  // Brings everything on its way that can be, and asks for what is lacking.
  void settle(TimePoint now);
  // As settle(), and answers requests that wait for memory of other sessions.
  void serve(TimePoint now);
  // Both also between a decision and its answer.
  template <class Answer>
  Answer settle(TimePoint now, Answer answer) {
    settle(now);
    return answer;
  }
  template <class Answer>
  Answer serve(TimePoint now, Answer answer) {
    serve(now);
    return answer;
  }
  Result<void> check_end(const Session& session, const Requester& by) const;
  void end(Session& session, CommandJobId job, const Requester& by, TimePoint now);
  void grant(TimePoint now);
  void progress(TimePoint now);
  void restore(const Checkpoint::Session& from);
  void restore_users(const Checkpoint& from);
  std::vector<RestoredSession> settle_restored(TimePoint now);
  void forget_if_done(SessionId id, TimePoint now);
  void note_closed(Session& session, TimePoint now);
  // Its sessions, less those without a process.
  std::size_t clients_of(TenantId tenant) const;
  Result<Explanation> with_regions(Result<Explanation> explanation) const;
  const Session* other_of_process(const Session& session) const;
  // The quotas of each tenant with sessions under a policy, and the tenant that each session then belongs to.
  Tenants::Rules members_under(const Policy& policy, std::map<SessionId, std::string>& owners) const;
  void move(std::map<SessionId, TenantId> owners, TimePoint now);

  State state_;
  Jobs jobs_{state_};
  Reservations reservations_{state_, jobs_};
  Reclaimer reclaimer_{state_};
  Explainer explainer_{state_, reclaimer_};
  Handles handles_{state_.outbox};
  Regions regions_{state_.outbox};
  Leases leases_{state_, handles_, regions_};
  Outside outside_{state_};
  ContextRoom contexts_{state_, leases_, outside_};
  Elastic elastic_{state_, leases_};
  Growths growths_{state_, jobs_, reservations_, explainer_, leases_, contexts_, elastic_};
  Exports exports_{state_, leases_, handles_, regions_};
  PublishedRegions published_{state_, leases_, handles_, regions_};
  Sharer sharer_{state_, reclaimer_, outside_, exports_, published_};
  Unmanaged unmanaged_{state_, outside_};
  UsageMeters usage_{state_};
  ExplanationLimit explanations_;
  std::uint64_t generation_ = 1;
};

}  // namespace gpumem::core
