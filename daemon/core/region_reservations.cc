#include "daemon/core/region_reservations.h"

#include "daemon/core/drop_from.h"
#include "daemon/core/refusals.h"

namespace gpumem::core {

// A client may release what an earlier broker has given it: the ids follow the clock, so that it names
// nothing of this broker's.
Result<Reservation> RegionReservations::add(Reservation reservation, TimePoint now) {
  const auto own = by_holder_.find(reservation.holder);
  if (own != by_holder_.end() && own->second.size() >= kMostOfSession) {
    return refusal(Bound::kRegions, "the session has reserved " + std::to_string(kMostOfSession) +
                                        " names of regions, as many as it may");
  }
  const auto elapsed = std::chrono::nanoseconds(now.time_since_epoch()).count();
  if (elapsed > 0) ids_.skip({static_cast<std::uint64_t>(elapsed)});
  reservation.id = ids_.next();
  by_name_.emplace(std::pair(reservation.owner, reservation.name), reservation.id);
  by_holder_[reservation.holder].insert(reservation.id);
  by_expiry_.emplace(reservation.expires, reservation.id);
  return reservations_.emplace(reservation.id, std::move(reservation)).first->second;
}

const Reservation* RegionReservations::find(const std::string& owner, const std::string& name) const {
  const auto found = by_name_.find({owner, name});
  return found == by_name_.end() ? nullptr : &reservations_.at(found->second);
}

std::optional<Reservation> RegionReservations::take(SessionId holder, ReservationId id) {
  const auto found = reservations_.find(id);
  if (found == reservations_.end() || found->second.holder != holder) return std::nullopt;
  return take(id);
}

Reservation RegionReservations::take(ReservationId id) {
  auto taken = reservations_.extract(id);
  Reservation& reservation = taken.mapped();
  by_name_.erase({reservation.owner, reservation.name});
  drop_from(by_holder_, reservation.holder, id);
  by_expiry_.erase({reservation.expires, id});
  return std::move(reservation);
}

std::optional<Reservation> RegionReservations::take_asked(SessionId holder, std::uint64_t number) {
  const auto own = by_holder_.find(holder);
  if (own == by_holder_.end()) return std::nullopt;
  for (const ReservationId id : own->second)
    if (reservations_.at(id).number == number) return take(id);
  return std::nullopt;
}

void RegionReservations::fulfil(SessionId holder, const std::string& owner, const std::string& name) {
  const Reservation* const found = find(owner, name);
  if (found != nullptr && found->holder == holder) take(found->id);
}

std::vector<Reservation> RegionReservations::take_all_of(SessionId holder) {
  std::vector<Reservation> ended;
  const auto own = by_holder_.find(holder);
  if (own == by_holder_.end()) return ended;
  for (const ReservationId id : std::set(own->second)) ended.push_back(take(id));
  return ended;
}

std::vector<Reservation> RegionReservations::take_expired(TimePoint now) {
  std::vector<Reservation> ended;
  while (!by_expiry_.empty() && by_expiry_.begin()->first <= now)
    ended.push_back(take(by_expiry_.begin()->second));
  return ended;
}

std::optional<TimePoint> RegionReservations::next_expiry() const {
  return by_expiry_.empty() ? std::nullopt : std::optional(by_expiry_.begin()->first);
}

}  // namespace gpumem::core
