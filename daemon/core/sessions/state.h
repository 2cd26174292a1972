#pragma once
#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/core/arbiter/arbiter.h"
#include "daemon/core/sessions/imports.h"
#include "daemon/core/sessions/outbox.h"
#include "daemon/core/sessions/tenants.h"
#include "daemon/core/words/policy.h"

namespace gpumem::core {

/// The state that all parts of the core work on: policy, tenants, sessions, charges, waiting requests and
/// decisions that are not handed over yet. Decides nothing itself.
struct State {
  explicit State(Policy policy_in_force);

  /// Errors  kUnauthenticated: there is no such session, or it has ended.
  Result<Session*> live(SessionId id);
  /// As live(). Errors  too: kUnavailable (the broker is stopping, or lends nothing new).
  Result<Session*> borrower(SessionId id);
  /// The session is known.
  Session& session(SessionId id) { return *sessions.at(id); }
  const Session& session(SessionId id) const { return *sessions.at(id); }
  /// Nothing, if it is not known.
  Session* find(SessionId id);
  const Session* find(SessionId id) const { return const_cast<State*>(this)->find(id); }
  /// Errors  kNotFound: names the devices that there are.
  Result<DeviceIndex> find_device(const std::string& uuid) const;
  /// The leaf that answers for the session's memory besides the pool. The host's counts for its job, whose
  /// limit there is a limit for pinned memory; a device's counts for the tenant's leaf outside of jobs.
  TenantId charged_besides(const Session& session, DeviceIndex device) const {
    return policy.devices[device].is_host() ? session.leaf : tenants.leaf_of(session.tenant);
  }
  /// The leaf that answers for the session's contexts: its job's where contexts are within its limit.
  TenantId charged_for_contexts(const Session& session, DeviceIndex device) const {
    return policy.devices[device].contexts_in_limit ? session.leaf : charged_besides(session, device);
  }
  /// The job of that number. Null: there is none.
  CommandJob* find_job(CommandJobId id);
  Checkpoint::CommandJob checkpoint_of(const CommandJob& job) const;
  void record(CommandJob& job);
  /// Charges the leaf `to` with what the session has been charged with so far.
  void transfer(const Session& from, TenantId to, DeviceIndex device, const Charges& charges);
  /// The leaf `to` answers for `bytes` outside the pool from now on, and not `from`. `not_asked`  of them,
  /// nobody is asked for.
  void transfer_outside(TenantId from, TenantId to, DeviceIndex device, Bytes bytes, Bytes not_asked);
  /// The part of the device's missing memory that would be there without the contexts of sessions.
  Bytes pool_of_contexts(DeviceIndex device) const {
    return std::min(given_to_contexts[device] + contexts_seen[device], missing(device));
  }
  /// Bytes of the pool that the driver does not give, although they are needed.
  Bytes missing(DeviceIndex device) const { return ledger.missing(device).minus(not_asked_for[device]); }
  /// The part of missing() that contexts of sessions have not taken.
  Bytes missing_besides_contexts(DeviceIndex device) const {
    return missing(device).minus(pool_of_contexts(device));
  }
  Event& note(Event::Kind kind, const Session& one, TimePoint now) { return outbox.note(kind, one, now); }
  /// The charge of the tenant that nobody is asked for has changed: one process's part was `before`.
  void charge_unasked(TenantId tenant, DeviceIndex device, Bytes before, Bytes after);
  void note_bytes(Event::Kind kind, const Session& one, DeviceIndex device, Bytes bytes, TimePoint now) {
    outbox.note_bytes(kind, one, device, bytes, now);
  }

  Ledger ledger;  // the first, being aligned to cache lines
  Policy policy;  ///< without the quotas of its tenants: the ledger has them
  Tenants tenants;
  Arbiter arbiter;
  Imports imports;
  boost::unordered_flat_map<SessionId, std::unique_ptr<Session>, std::hash<SessionId>> sessions;
  IdSource<SessionId> session_ids;
  std::map<CommandJobId, CommandJob> jobs;
  std::unordered_map<TenantId, CommandJobId> job_of_leaf;
  Checkpoint::AllSpent spent;                     ///< of sessions and jobs, as last written down
  std::vector<std::set<CommandJobId>> reserving;  ///< by device: jobs that have a reservation on it
  std::set<SessionId> session_order;              ///< all sessions, for listings
  std::set<SessionId> detached_sessions;          ///< of `session_order`: without a process
  std::vector<std::set<SessionId>> declaring;     ///< by device: who answers for memory outside the pool
  std::vector<Bytes> past_broker;                 ///< by device: taken past the broker, as last seen
  std::vector<Bytes> hinders_proofs;              ///< by device: others' memory, as last seen (pinned())
  std::vector<Bytes> given_to_contexts;           ///< by device: of the pool, for those not measured yet
  std::vector<Bytes> contexts_seen;               ///< by device: of sessions, as the driver last said
  /// By device, of an elastic pool: missing bytes for which there is no demand, or which are being created.
  std::vector<Bytes> not_asked_for;
  /// By device: what tenants are charged that nobody is asked for, nor ended for. Memory past the broker, and
  /// of contexts what their estimate did not tell.
  std::vector<std::map<TenantId, Bytes>> unasked;
  Outbox outbox;
  bool draining = false;
  std::string stopped_lending;  ///< why nothing new is lent; empty: it is
};

}  // namespace gpumem::core
