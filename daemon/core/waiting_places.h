#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/checkpoint.h"
#include "daemon/core/outbox.h"
#include "daemon/core/request.h"

namespace gpumem::core {

Checkpoint::Waiting checkpoint_of(const Request& request);

/// What the next broker is told of the requests that wait, and the places that were kept of the broker
/// before. A place is the request's id: ids are given out in the order in which requests begin to wait. After
/// a restart, whoever asks for the same as a request of its session that waited before has that one's place.
/// What a client says of how long it has waited counts for nothing.
class WaitingPlaces {
 public:
  explicit WaitingPlaces(Outbox& outbox) : outbox_(outbox) {}

  /// The request waits; it is recorded from now on.
  void note(const Request& request);
  /// It waits no longer, whatever has come of it.
  void forget(const Request& request);
  /// A place of the broker before is nobody's. Nothing, if there is none.
  void release(SessionId session, RequestId request);
  void release_all_of(SessionId session);
  /// A recorded request is answered since this broker ends. The next one keeps its place.
  void leave_to_next(const Request& request);

  /// One of the broker before.
  void restore(const Checkpoint::Waiting& from);
  /// The session is back, and asks again until `until` for what it waits for.
  void keep_until(SessionId session, TimePoint until);
  /// Whether any place is kept.
  bool keeps_any() const { return kept_ != 0; }
  /// The first place of the session that was kept for a request for the same, unless the time of that request
  /// is over. It is kept for nobody else from now on.
  std::optional<RequestId> take(SessionId session, const Request::Parts& parts, TimePoint now);
  /// Since when whoever has taken the place has waited. None: the request's place was not kept.
  std::optional<TimePoint> since(SessionId session, RequestId request) const;

  /// Those of requests that are recorded are not among them.
  void add_to(Checkpoint& checkpoint) const;

 private:
  struct Place {
    Checkpoint::Waiting waiting;
    bool is_kept = false;                ///< for a client that has not asked again yet
    TimePoint until = TimePoint::max();  ///< so long it is kept
  };
  Outbox& outbox_;
  std::map<std::pair<SessionId, RequestId>, Place> places_;  ///< of requests that are not recorded
  std::size_t kept_ = 0;                                     ///< of places_
  RequestId last_restored_;                                  ///< those after it are this broker's own
};

}  // namespace gpumem::core
