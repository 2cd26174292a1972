#include "daemon/core/lending/region_waits.h"

#include "daemon/core/words/algorithms.h"
#include "daemon/core/words/refusals.h"

namespace gpumem::core {

Result<void> RegionWaits::add(RequestId id, RegionWait wait) {
  const auto full = [](const std::string& who, std::size_t most) {
    return refusal(Bound::kRegions,
                   "the " + who + " waits for " + std::to_string(most) + " regions, as many as it may");
  };
  if (count_of(wait.session) >= kMostOfSession) return full("session", kMostOfSession);
  if (count_of(wait.tenant) >= kMostOfTenant) return full("tenant", kMostOfTenant);
  by_session_[wait.session].insert(id);
  ++count_of_tenant_[wait.tenant];
  by_key_[wait.key()].insert(id);
  by_deadline_.emplace(wait.deadline, id);
  waits_.emplace(id, std::move(wait));
  return {};
}

std::optional<RegionWait> RegionWaits::take(RequestId id) {
  auto taken = waits_.extract(id);
  if (taken.empty()) return std::nullopt;
  RegionWait& wait = taken.mapped();
  drop_from(by_key_, wait.key(), id);
  drop_from(by_session_, wait.session, id);
  count_out(wait.tenant);
  by_deadline_.erase({wait.deadline, id});
  return std::move(wait);
}

std::vector<RequestId> RegionWaits::all() const {
  std::vector<RequestId> ids;
  for (const auto& [id, wait] : waits_) ids.push_back(id);
  return ids;
}

std::vector<RequestId> RegionWaits::expired(TimePoint now, std::size_t most) const {
  std::vector<RequestId> ids;
  for (const auto& [deadline, id] : by_deadline_) {
    if (deadline > now || ids.size() == most) break;
    ids.push_back(id);
  }
  return ids;
}

void RegionWaits::count_out(TenantId tenant) {
  const auto found = count_of_tenant_.find(tenant);
  if (--found->second == 0) count_of_tenant_.erase(found);
}

void RegionWaits::follow(SessionId session, TenantId tenant, const std::string& tenant_name) {
  for (const RequestId id : found(by_session_, session)) {
    RegionWait& wait = waits_.at(id);
    drop_from(by_key_, wait.key(), id);
    count_out(wait.tenant);
    wait.tenant = tenant;
    if (wait.is_own) wait.terms.owner = tenant_name;
    by_key_[wait.key()].insert(id);
    ++count_of_tenant_[tenant];
  }
}

std::vector<TenantId> RegionWaits::tenants_for(const std::string& owner, const std::string& name) const {
  std::vector<TenantId> tenants;
  for (auto next = by_key_.lower_bound({owner, name, {}}); next != by_key_.end(); ++next) {
    const auto& [of, named, tenant] = next->first;
    if (of != owner || named != name) break;
    tenants.push_back(tenant);
  }
  return tenants;
}

std::vector<std::pair<std::string, std::string>> RegionWaits::names() const {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [key, ids] : by_key_) {
    std::pair name(std::get<0>(key), std::get<1>(key));
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  return names;
}

std::optional<RequestId> RegionWaits::take_due() {
  while (!due_.empty()) {
    const RequestId first = due_.extract(due_.begin()).value();
    if (find(first) != nullptr) return first;
  }
  return std::nullopt;
}

std::vector<RequestId> RegionWaits::take_pressed() {
  std::vector<RequestId> waiting;
  for (const RequestId id : std::exchange(pressed_, {}))
    if (find(id) != nullptr) waiting.push_back(id);
  return waiting;
}

// A client may release what an earlier broker has given it: the ids follow the clock, so that it names
// nothing of this broker's.
Result<Reservation> RegionReservations::add(Reservation reservation, TimePoint now) {
  const auto own = by_holder_.find(reservation.holder);
  if (own != by_holder_.end() && own->second.size() >= kMostOfSession)
    return refusal(Bound::kRegions, "the session has reserved " + std::to_string(kMostOfSession) +
                                        " names of regions, as many as it may");
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

std::vector<Reservation> RegionReservations::take_expired(TimePoint now, std::size_t most) {
  std::vector<Reservation> ended;
  while (ended.size() < most && !by_expiry_.empty() && by_expiry_.begin()->first <= now)
    ended.push_back(take(by_expiry_.begin()->second));
  return ended;
}

std::optional<TimePoint> RegionReservations::next_expiry() const {
  return by_expiry_.empty() ? std::nullopt : std::optional(by_expiry_.begin()->first);
}

}  // namespace gpumem::core
