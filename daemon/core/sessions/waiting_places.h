#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/sessions/outbox.h"
#include "daemon/core/words/checkpoint.h"
#include "daemon/core/words/request.h"

namespace gpumem::core {

Checkpoint::Waiting checkpoint_of(const Request& request);

/// Records the waiting requests for the next broker, and keeps the places of those that the broker before
/// recorded. A place is the request's id: ids are given out in the order in which requests begin to wait.
/// After a restart, a session that repeats a request gets the place of the earlier one. The client's own
/// account of how long it has waited does not count.
class WaitingPlaces {
 public:
  explicit WaitingPlaces(Outbox& outbox) : outbox_(outbox) {}

  /// The request waits; it is recorded from now on.
  void note(const Request& request);
  /// The request has ended: granted, refused or cancelled.
  void forget(const Request& request);
  /// Gives up a place of the broker before. No effect if there is none.
  void release(SessionId session, RequestId request);
  void release_all_of(SessionId session);
  /// This broker stops and answers the request. The next broker keeps the place if the request is recorded.
  void leave_to_next(const Request& request);

  /// Keeps a place of the broker before.
  void restore(const Checkpoint::Waiting& from);
  /// The session is back. Its places are kept until `until`.
  void keep_until(SessionId session, TimePoint until);
  /// Whether any place is kept.
  bool keeps_any() const { return kept_ != 0; }
  /// Takes the first kept place of the session whose request asked for the same and has not expired.
  std::optional<RequestId> take(SessionId session, const Request::Parts& parts, TimePoint now);
  /// The time when the request was first made, if its place was taken. None: its place was not kept.
  std::optional<TimePoint> since(SessionId session, RequestId request) const;

  /// Adds the places of requests that are not recorded.
  void add_to(Checkpoint& checkpoint) const;

 private:
  struct Place {
    Checkpoint::Waiting waiting;
    bool is_kept = false;                ///< the client has not asked again yet
    TimePoint until = TimePoint::max();  ///< kept until then
  };
  Outbox& outbox_;
  std::map<std::pair<SessionId, RequestId>, Place> places_;  ///< of requests that are not recorded
  std::size_t kept_ = 0;                                     ///< of places_
  RequestId last_restored_;                                  ///< later requests are this broker's own
};

}  // namespace gpumem::core
