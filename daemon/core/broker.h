#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/arbiter.h"
#include "daemon/core/effects.h"
#include "daemon/core/events.h"
#include "daemon/core/observation.h"
#include "daemon/core/policy.h"
#include "daemon/core/reclaim.h"
#include "daemon/core/records.h"
#include "daemon/core/store.h"
#include "daemon/core/views.h"
#include "shm/pages.h"

namespace gpumem::core {

/// How a session came to its end.
enum class Farewell {
  kReleased,  ///< the client said that it has unmapped everything
  kLost,      ///< the lane broke: what the process has mapped stays mapped while it lives
  kExited,    ///< the process is gone
};

/// The broker's decisions: events in, effects out. No clock, no I/O, no threads: `now` comes with the
/// events, effects are taken with take_effects() after each of them and done by the host.
///
/// Invariants
///  - every lease is charged to its session's tenant, in the ledger, in exactly one state;
///  - every request is answered exactly once, unless it is cancelled or its session ends before;
///  - an extent that was lent never comes back into a pool.
/// Threads  one.
class Broker {
 public:
  /// `policy`  checked by check(policy).
  explicit Broker(Policy policy);

  /// Errors  kPermissionDenied (no tenant), kResourceExhausted (too many sessions; no room for the
  /// guarantee).
  Result<SessionId> open_session(const Peer& peer, std::string label, TimePoint now);
  /// The lane is gone. Requests that wait are dropped; leases come back now, or, if the process may still
  /// use them, when exited() says so. Unknown sessions are ignored.
  void session_ended(SessionId session, Farewell farewell, TimePoint now);
  /// The process is gone, and with it every mapping of its own.
  void exited(SessionId session, TimePoint now);

  /// `limit`  zero: the tenant's limit. Answers the slice.
  /// Errors  kNotFound (device), kInvalidArgument (more than the pool), kResourceExhausted (too many slices),
  ///         kPermissionDenied (the tenant's limit is 0).
  Result<Slice> open_slice(SessionId session, const std::string& device, Bytes limit, std::string label);
  /// Errors  kNotFound, kFailedPrecondition (holds leases or waits for some).
  Result<void> close_slice(SessionId session, SliceId slice, TimePoint now);

  /// One part of a growth. Bytes are rounded up to the granularity.
  struct Part {
    SliceId slice;
    Bytes wanted;
    Bytes least{};    ///< less is of no use; zero: `wanted`
    Bytes largest{};  ///< extents are preferably not larger; zero: no preference
  };
  /// Asks for memory for one slice, or for several of different devices, all or nothing. Answered by one
  /// AnswerGrow effect.
  /// `id`  larger than that of every request before.
  void grow(RequestId id, SessionId session, std::span<const Part> parts, Duration wait, TimePoint now);
  /// Withdraws a request. Granted meanwhile: the leases come back as soon as the client lets go of them.
  void cancel(RequestId id, TimePoint now);
  /// The answer to a growth has not reached its client: what was not accepted of the grant comes back as
  /// soon as the client lets go of it. Unknown grants are ignored.
  void abandon(GrantId grant, TimePoint now);
  /// The client has mapped all of the grant. Errors  kNotFound.
  Result<void> accept(SessionId session, GrantId grant);
  /// The client has let go of the leases. All or nothing. Errors  kNotFound: not leases of this slice.
  Result<void> give_back(SessionId session, SliceId slice, std::span<const LeaseId> leases, TimePoint now);

  /// Declares what the session's process holds of a device past the broker, in place of what was declared
  /// before. Errors  kNotFound (device), kInvalidArgument (more than the device has).
  Result<void> charge(SessionId session, const std::string& device, Bytes declared, TimePoint now);
  /// The session has nothing more to give back at present: what it is asked for is asked of others too.
  void spent(SessionId session, DeviceIndex device, TimePoint now);
  /// The driver is about to be asked what observe() will be told. What comes back in between may still be in
  /// its figures.
  void begin_observation(DeviceIndex device);
  /// What the driver says of a device's memory (broker_reconcile.cc).
  void observe(const Observation& observation, TimePoint now);

  void job_done(const JobResult& result, TimePoint now);
  /// Time has passed: to be called at next_deadline().
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  /// Puts another policy in force, all or nothing: quotas, tenants, numbers; not the devices. `cause`: who
  /// changed what, for those who watch.
  /// Errors  kInvalidArgument, kFailedPrecondition (other devices or pools: needs a restart).
  Result<void> apply(Policy policy, TimePoint now, std::string cause = {});

  /// Refuses everything that waits, and from now on every session and request.
  void drain();
  /// Every device has its pool and its stock.
  bool settled() const;

  std::vector<Effect> take_effects();
  /// Sessions whose own figures have changed since the last call.
  std::vector<SessionId> take_touched();

  /// Without the quotas of its tenants: tenants() has them.
  const Policy& policy() const { return policy_; }
  bool knows(SessionId session) const;
  std::string tenant_name(SessionId session) const;
  BrokerFigures figures(SessionId session) const;
  /// Another number than before: figures may have changed, of any session.
  std::uint64_t figures_revision() const { return ledger_.revision() + generation_; }
  std::vector<DeviceView> devices() const;
  std::vector<TenantView> tenants() const;
  std::vector<SessionView> sessions() const;
  const Reconciliation& reconciliation(DeviceIndex device) const;
  std::vector<Event> take_events();
  /// Errors  kNotFound. `everything`: other tenants by name too.
  Result<Explanation> explain_session(SessionId session, bool everything, TimePoint now) const;
  Result<Explanation> explain_tenant(const std::string& tenant, bool everything, TimePoint now) const;
  /// Whether `tenant` is `of`, or belongs to it; false for unknown ones.
  bool belongs(const std::string& tenant, const std::string& of) const;

 private:
  Result<Session*> live_session(SessionId id);
  Result<DeviceIndex> find_device(const std::string& uuid) const;
  Result<TenantId> admit_tenant(const TenantMatch& match);
  Result<void> check_room(const TenantMatch& match) const;
  TenantId add_tenant(const std::string& name, std::shared_ptr<const Quotas> quotas, TenantId parent,
                      bool configured);
  void retire_tenant(TenantId id);
  bool is_below(TenantId tenant, TenantId of) const;

  // broker_policy.cc
  using Rules = std::map<std::string, TenantRule>;
  Rules rules_under(const Policy& policy) const;
  Result<void> check_parents(const Rules& rules) const;
  std::vector<std::string> changed_under(const Rules& rules) const;
  void put_in_force(const Rules& rules);

  // broker_memory.cc
  struct Refusal {
    std::size_t part = 0;
    Denial::Reason reason;
  };
  Result<std::vector<Request::Part>, GrowFailure> parts_of(const Session& session,
                                                           std::span<const Part> parts) const;
  std::optional<Refusal> hopeless(const Request& request) const;
  TimePoint deadline_of(const Request& request, TimePoint now) const;
  void refuse(const Request& request, Refusal refusal, TimePoint now);
  void answer(RequestId id, Error error);
  void begin(Granted granted, TimePoint now);
  void undo(const Assembly& assembly);
  /// Brings everything on its way that can be, and asks for what is lacking.
  void settle(TimePoint now);
  void progress(TimePoint now);
  bool advance(DeviceIndex device, TimePoint now);
  void assembled(DeviceIndex device, Store::Progress::Assembly&& one);
  void unobtainable(DeviceIndex device, RequestId id);
  void deliver(Assembly assembly);
  void set_state(Lease& lease, Charge state);
  void take_back(Lease& lease);
  void freed(LeaseId id, TimePoint now);
  void release_leases(Session& session);
  void forget_if_done(SessionId id);
  Slice* slice_of(SessionId session, SliceId slice);

  // broker_reclaim.cc
  struct Sentence {
    TimePoint kill_at;
    TimePoint given_up_at;  ///< what it holds is not counted on any more
    bool killed = false;
  };
  struct Pressure {
    std::set<SessionId> asked;
    std::map<RequestId, TimePoint> lacking;  ///< claims, since when they lack memory
    std::map<TenantId, TimePoint> debts;     ///< since when
    std::map<SessionId, TimePoint> spent;    ///< have nothing to give, by their own word, until then
    std::optional<TimePoint> due;
    std::pair<std::uint64_t, std::uint64_t> seen{};  ///< revisions that the latest plan was made of
    bool idle() const { return asked.empty() && lacking.empty() && debts.empty() && spent.empty(); }
  };
  bool press(TimePoint now);
  bool press(DeviceIndex device, TimePoint now);
  ReclaimPlan plan(DeviceIndex device, bool believe_spent, TimePoint now) const;
  void ask_sessions(DeviceIndex device, const ReclaimPlan& plan, TimePoint now);
  void ask(Session& session, DeviceIndex device, Bytes bytes, const char* cause, TimePoint now);
  bool watch_claims(DeviceIndex device, const ReclaimPlan& plan, TimePoint now);
  void watch_debts(DeviceIndex device, TimePoint now);
  bool escalate(DeviceIndex device, Bytes lack, Bytes Ask::*cause, TimePoint now);
  void end_one_of(TenantId tenant, DeviceIndex device, Bytes needed, TimePoint now);
  void carry_out_sentences(TimePoint now);
  void press_anew();
  void wake(DeviceIndex device, TimePoint at);
  void forget_pressure(SessionId session);
  std::vector<SessionId> givers(TenantId tenant, DeviceIndex device, bool believe_spent) const;
  Bytes held(const Session& session, DeviceIndex device) const;
  Bytes leaving(const Session& session, DeviceIndex device) const;
  /// Below `of`; none: of the whole device.
  Bytes coming(DeviceIndex device, TimePoint now, TenantId of = {}) const;
  std::optional<TimePoint> pressure_deadline() const;

  // broker_explain.cc
  Denial denial_of(const Request& request, Refusal refusal, TimePoint now) const;
  Refusal obstacle(const Request& request) const;
  Denial::Reason limit_reason(TenantId limiting, DeviceIndex device) const;
  Denial::Soonest soonest(const Request& request, Refusal refusal, TimePoint now) const;
  std::vector<Denial::Holder> holders(TenantId tenant, DeviceIndex device) const;
  std::vector<Denial::Holder> other_tenants(TenantId tenant, DeviceIndex device) const;
  Explanation explanation_of(TenantId tenant, const std::vector<SessionId>& sessions, bool everything,
                             TimePoint now) const;
  Standing standing(TenantId tenant, DeviceIndex device) const;

  // What is charged besides leases (broker_outside.cc, broker_reconcile.cc).
  class Observing;
  /// Whether the context that the session's first slice on the device brings with it may be charged.
  /// Errors  kResourceExhausted: names the limit.
  Result<void> check_overhead(const Session& session, DeviceIndex device) const;
  /// Charges it; does nothing after the first slice.
  void begin_overhead(Session& session, DeviceIndex device);
  /// The session is over: nothing is charged any more. Its tenant may be retired after.
  void end_outside(Session& session);
  /// A lease's memory was proved free.
  void note_freed(const Lease& lease);
  void set_outside(Session& session, DeviceIndex device, Bytes Outside::*part, Bytes bytes);
  /// Kills what was told to end because of what it holds past the broker, and has not.
  void end_overdue(TimePoint now);
  /// What is known of whoever is to end; nothing, if it is gone.
  const PastBroker* watch_of(const Ending& ending) const;
  std::optional<TimePoint> reconcile_deadline() const;

  Event& note(Event::Kind kind, TimePoint now);
  Event& note(Event::Kind kind, const Session& session, TimePoint now);
  void note_extent(Event::Kind kind, const Lease& lease, TimePoint now);
  void touch(SessionId session);

  Policy policy_;
  Ledger ledger_;
  Arbiter arbiter_;
  IdSource<ExtentId> extent_ids_;
  IdSource<JobId> job_ids_;
  IdSource<SessionId> session_ids_;
  IdSource<SliceId> slice_ids_;
  IdSource<LeaseId> lease_ids_;
  IdSource<GrantId> grant_ids_;
  std::vector<Store> stores_;
  std::unordered_map<SessionId, Session> sessions_;
  std::unordered_map<TenantId, Tenant> tenants_;
  std::map<std::string, TenantId> tenant_by_name_;
  std::shared_ptr<const Quotas> default_quotas_;  ///< those of the latest tenant without a rule
  std::unordered_map<LeaseId, Lease> leases_;
  std::unordered_map<GrantId, std::vector<LeaseId>> offered_;  ///< not yet accepted
  std::unordered_map<RequestId, Assembly> assemblies_;         ///< charged, being brought together
  std::vector<Pressure> pressure_;                             ///< by device
  std::map<SessionId, Sentence> sentences_;
  std::vector<Event> events_;
  std::vector<Effect> effects_;
  std::vector<SessionId> touched_;
  std::uint64_t generation_ = 1;
  bool draining_ = false;
  std::vector<Reconciled> reconciled_ = std::vector<Reconciled>(policy_.devices.size());
  std::vector<Ending> endings_;
};

}  // namespace gpumem::core
