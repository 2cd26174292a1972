#pragma once
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/core/lending/context_room.h"
#include "daemon/core/lending/elastic.h"
#include "daemon/core/lending/leases.h"
#include "daemon/core/reclaim/explainer.h"
#include "daemon/core/reclaim/reservations.h"
#include "daemon/core/sessions/jobs.h"
#include "daemon/core/sessions/waiting_places.h"
#include "daemon/core/words/requests.h"

namespace gpumem::core {

/// Requests for memory: they wait, are granted, get their extents from the stores, and become leases.
/// Invariant: every request is answered exactly once, unless it is cancelled or its session ends before.
class Growths {
 public:
  /// All outlive it.
  Growths(State& state, Jobs& jobs, Reservations& reservations, const Explainer& explainer, Leases& leases,
          ContextRoom& contexts, Elastic& elastic)
      : state_(state),
        jobs_(jobs),
        reservations_(reservations),
        explainer_(explainer),
        leases_(leases),
        contexts_(contexts),
        elastic_(elastic),
        places_(state.outbox) {}

  /// As Broker's.
  std::optional<RequestId> place_kept(const Session& session, std::span<const GrowthPart> parts,
                                      TimePoint now);
  /// Lets the request join its queues, or refuses it at once. True: it waits, or will be granted.
  bool ask(RequestId id, Session& session, const Grow& asked, TimePoint now);
  /// As ask(), for a job's reservation.
  bool ask_reservation(RequestId id, Session& owner, const CommandJob& job, const ReserveForJob& asked,
                       TimePoint now);
  std::optional<RequestId> place_kept(const Session& owner, const CommandJob& job, const ReserveForJob& asked,
                                      TimePoint now);
  /// As ask(), for a context. The request joins its queue when the driver has told what it has free.
  void ask_context(RequestId id, const Session& session, DeviceIndex device, Duration wait, TimePoint now);
  /// Tells that the request waits, if it still does; what may not wait is refused. If an elastic pool grows
  /// for the request, this is put off.
  void wait_or_refuse(RequestId id, TimePoint now);
  /// wait_or_refuse() for requests for which it was put off, and for contexts whose requests have joined
  /// their queues. To be called after a job's end and the grants that follow.
  void wait_or_refuse_put_off(TimePoint now);
  void cancel(RequestId id, TimePoint now);
  /// As Broker's.
  std::optional<TimePoint> answer_due(RequestId id) const;
  /// Takes a request that waits out of its queues and refuses it for what keeps it waiting.
  void refuse_waiting(RequestId id, TimePoint now);
  void refuse_expired(TimePoint now);
  /// Limits or promises have changed: refuses every waiting request that can never be granted now.
  void refuse_infeasible(TimePoint now);
  void answer(RequestId id, Error error);
  /// The broker is stopping: answers all that waits. The next broker keeps their places.
  void leave_to_next();

  /// Grants, assembles and frees, until memory is proved free or nothing is left to do. Returns the sessions
  /// that had the freed memory, since that can be the end of a tenant and of its guarantees.
  std::vector<SessionId> progress(TimePoint now);

  /// Drops the session's requests.
  void end(Session& session, TimePoint now);

  /// After another broker: keeps the place of a request.
  void restore(const Checkpoint::Waiting& from) { places_.restore(from); }
  /// As WaitingPlaces::keep_until.
  void keep_places_until(SessionId session, TimePoint until) { places_.keep_until(session, until); }
  void add_to(Checkpoint& checkpoint) const;

 private:
  Request request_of(RequestId id, const Session& session, Request::Parts parts, Duration wait,
                     TimePoint now) const;
  bool join_or_release(Request request, TimePoint now);
  bool join(Request request, TimePoint now);
  Result<void> check_room(SessionId session, std::uint64_t account) const;
  Result<Request::Parts> parts_of(const Session& session, std::span<const GrowthPart> parts) const;
  Result<Request::Part> part_of(const Session& session, const GrowthPart& part) const;
  TimePoint deadline_of(const Request& request, TimePoint now) const;
  void refuse(const Request& request, const Refusal& refusal, TimePoint now);
  Result<Request::Parts> parts_of(const CommandJob& job, const ReserveForJob& asked) const;
  void note_denied(const Request& request, Duration waited);
  void note_waited(const Request& request, TimePoint now);
  Bytes room_besides_contexts(TenantId tenant, DeviceIndex device) const;
  void note_granted(const Granted& granted, TimePoint now);
  void answer_reserved(const Request& request, TimePoint now);
  void begin(Granted granted);
  void undo(const Assembly& assembly);
  bool join_contexts(const Store::Progress& progress, TimePoint now);
  bool note_missing(DeviceIndex device);
  bool advance(DeviceIndex device, TimePoint now, std::vector<SessionId>& freed);
  void assembled(DeviceIndex device, Store::Progress::Assembly&& one);
  void give_up(RequestId id, Error why, TimePoint now);
  Error unobtainable(DeviceIndex device) const;
  static Error too_many_extents();

  State& state_;
  Jobs& jobs_;
  Reservations& reservations_;
  const Explainer& explainer_;
  Leases& leases_;
  ContextRoom& contexts_;
  Elastic& elastic_;
  std::vector<RequestId> put_off_;  ///< for wait_or_refuse_put_off()
  WaitingPlaces places_;
  std::unordered_map<RequestId, Assembly> assemblies_;  ///< charged, being brought together
};

}  // namespace gpumem::core
