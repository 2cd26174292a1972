#pragma once
#include <map>
#include <optional>
#include <vector>

#include "daemon/core/sessions/state.h"
#include "daemon/core/words/requests.h"

namespace gpumem::core {

/// The jobs. Each is a leaf below its tenant: its limit, its charges and its reservation are in the ledger.
///
/// Invariant  a job has an owner, or sessions.
class Jobs {
 public:
  explicit Jobs(State& state) : state_(state) {}

  /// Makes a job of the session's. Errors  kFailedPrecondition: it has one, or is in one; a host limit, and
  /// there is no host store.
  Result<JobBegun> begin(Session& owner, const BeginJob& request, TimePoint now);
  /// The job that the session owns. Null: none.
  CommandJob* owned_by(SessionId session);
  /// The job of that number, below the tenant, that the peer's user has made. The peer may not join if the
  /// broker can end the owner and not the peer. Null: there is none that it may join.
  const CommandJob* find(CommandJobId id, TenantId tenant, const Peer& peer) const;
  JobAccount account(const CommandJob& job) const;
  /// The owner is gone: the job's reservation ends, and the job with its last session.
  void lose_owner(SessionId owner, TimePoint now);
  /// A session of the job is gone.
  void end_if_done(CommandJobId id, TimePoint now);

  // What its account tells.
  void note_lent(CommandJob& job, DeviceIndex device, TimePoint now);
  /// What it has of the device may be more than ever before.
  void note_level(CommandJob& job, DeviceIndex device);
  /// When each of its requests that wait was made.
  std::vector<TimePoint> waiting_since(const CommandJob& job) const;
  void note_waited(CommandJob& job, Duration waited);
  void note_denied(CommandJob& job, Duration waited, bool counts);

  /// The job has been granted memory of a device for its reservation.
  void note_reserved(CommandJob& job, DeviceIndex device, TimePoint now);
  /// Takes `bytes` that are not on loan out of the job's reservation.
  void give_up(CommandJob& job, DeviceIndex device, Bytes bytes);
  /// Undoes give_up(): the bytes are still free.
  void take_back(CommandJob& job, DeviceIndex device, Bytes bytes);

  /// Sessions come to other tenants. A job follows its owner; without one, one of its sessions. Sessions that
  /// do not follow their job are added to `to`, with their tenant. The caller moves the sessions, and puts
  /// waiting requests in order anew.
  void move(std::map<SessionId, TenantId>& to);

  void skip(CommandJobId last) { ids_.skip(last); }
  /// After another broker. The sessions are restored, and say which job they are in; their leases are not
  /// yet.
  void restore(const std::map<CommandJobId, Checkpoint::CommandJob>& from,
               const std::vector<std::optional<DeviceIndex>>& devices);
  /// Then, when all leases are restored.
  void restore_reservations(const std::map<CommandJobId, Checkpoint::CommandJob>& from,
                            const std::vector<std::optional<DeviceIndex>>& devices, TimePoint now);
  /// There is more of the device's pool: jobs have reserved again what they had at the broker before, as far
  /// as it goes.
  void reserve_restored(DeviceIndex device);
  void add_to(Checkpoint& checkpoint) const;

 private:
  CommandJob& add(CommandJobId id, TenantId tenant, Quotas quotas);
  void note_closed(CommandJob& job, TimePoint now);
  void divide(TenantId tenant);
  Quotas quotas(TenantId tenant, const BeginJob& request) const;
  void put(Session& session, const CommandJob& job);
  /// The memory of the device that the job is lent. Of the host, it includes pinned memory.
  Bytes level(const CommandJob& job, DeviceIndex device) const;

  State& state_;
  IdSource<CommandJobId> ids_;
  std::map<SessionId, CommandJobId> owned_;
};

}  // namespace gpumem::core
