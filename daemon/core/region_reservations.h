#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::core {

/// A name of a tenant that a session has reserved: it is going to publish a region under it.
struct Reservation {
  ReservationId id;
  SessionId holder;
  std::string owner;  ///< the tenant's name
  std::string name;
  TimePoint expires{};
  std::uint64_t number = 0;  ///< the holder's own of the request that got it
};

/// The names that are reserved, each by one session. Publishing needs none. Not journaled: a restart of the
/// broker ends them all.
class RegionReservations {
 public:
  static constexpr std::size_t kMostOfSession = 64;

  /// Gives it its id, which is higher than that of every one before, whichever broker of this boot has given
  /// it out. The name is free. Errors  kResourceExhausted: the session has as many as it may.
  Result<Reservation> add(Reservation reservation, TimePoint now);
  /// Null: the name is free.
  const Reservation* find(const std::string& owner, const std::string& name) const;
  /// Nothing: the holder has none with this id (any more).
  std::optional<Reservation> take(SessionId holder, ReservationId id);
  /// By the holder's own number of the request.
  std::optional<Reservation> take_asked(SessionId holder, std::uint64_t number);
  /// The holder has published a region of the name.
  void fulfil(SessionId holder, const std::string& owner, const std::string& name);
  /// Both return those that have ended.
  std::vector<Reservation> take_all_of(SessionId holder);
  std::vector<Reservation> take_expired(TimePoint now);
  std::optional<TimePoint> next_expiry() const;

 private:
  Reservation take(ReservationId id);

  IdSource<ReservationId> ids_;
  std::map<ReservationId, Reservation> reservations_;
  std::map<std::pair<std::string, std::string>, ReservationId> by_name_;
  std::map<SessionId, std::set<ReservationId>> by_holder_;
  std::set<std::pair<TimePoint, ReservationId>> by_expiry_;
};

}  // namespace gpumem::core
