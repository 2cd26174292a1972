#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/arbiter.h"
#include "daemon/core/effects.h"
#include "daemon/core/policy.h"
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

  /// Asks for `bytes` (rounded up to the granularity) for `slice`. Answered by one AnswerGrow effect.
  /// `id`  larger than that of every request before.
  void grow(RequestId id, SessionId session, SliceId slice, Bytes bytes, Duration wait, TimePoint now);
  /// Withdraws a request. Granted meanwhile: the leases come back as soon as the client lets go of them.
  void cancel(RequestId id, TimePoint now);
  /// The answer to a growth has not reached its client: what was not accepted of the grant comes back as
  /// soon as the client lets go of it. Unknown grants are ignored.
  void abandon(GrantId grant, TimePoint now);
  /// The client has mapped all of the grant. Errors  kNotFound.
  Result<void> accept(SessionId session, GrantId grant);
  /// The client has let go of the leases. All or nothing. Errors  kNotFound: not leases of this slice.
  Result<void> give_back(SessionId session, SliceId slice, std::span<const LeaseId> leases, TimePoint now);

  void job_done(const JobResult& result, TimePoint now);
  /// Time has passed: to be called at next_deadline().
  void tick(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  /// Puts another policy in force, all or nothing: quotas, tenants, numbers; not the devices.
  /// Errors  kInvalidArgument, kFailedPrecondition (other devices or pools: needs a restart).
  Result<void> apply(Policy policy, TimePoint now);

  /// Refuses everything that waits, and from now on every session and request.
  void drain();
  /// Every device has its pool and its stock.
  bool settled() const;

  std::vector<Effect> take_effects();
  /// Sessions whose own figures have changed since the last call.
  std::vector<SessionId> take_touched();

  const Policy& policy() const { return policy_; }
  bool knows(SessionId session) const;
  std::string tenant_name(SessionId session) const;
  BrokerFigures figures(SessionId session) const;
  /// Another number than before: figures may have changed, of any session.
  std::uint64_t figures_revision() const { return ledger_.revision() + generation_; }
  std::vector<DeviceView> devices() const;
  std::vector<TenantView> tenants() const;
  std::vector<SessionView> sessions() const;

 private:
  Result<Session*> live_session(SessionId id);
  Result<TenantId> admit_tenant(const TenantMatch& match);
  void retire_tenant(TenantId id);
  Denial denial_of(const Request& request, Denial::Reason reason, TimePoint now) const;
  std::vector<Denial::Holder> holders(TenantId tenant, DeviceIndex device) const;
  void undo(const Request& request);
  void refuse(const Request& request, Denial::Reason reason, TimePoint now);
  Denial::Reason obstacle(const Request& request) const;
  void answer(RequestId id, Error error);

  void touch(SessionId session);
  void settle(TimePoint now);
  bool settle_device(DeviceIndex device, TimePoint now);
  void deliver(const Store::Progress::Assembly& assembly);
  void set_state(Lease& lease, Charge state);
  void take_back(Lease& lease);
  void freed(LeaseId id);
  void release_leases(Session& session);
  void forget_if_done(SessionId id);

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
  std::unordered_map<LeaseId, Lease> leases_;
  std::unordered_map<GrantId, std::vector<LeaseId>> offered_;  ///< not yet accepted
  std::unordered_map<RequestId, Request> granted_;             ///< charged, being assembled
  std::vector<Effect> effects_;
  std::vector<SessionId> touched_;
  std::uint64_t generation_ = 1;
  bool draining_ = false;
};

}  // namespace gpumem::core
