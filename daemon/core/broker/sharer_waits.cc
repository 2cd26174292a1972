#include "base/crash_point.h"
#include "daemon/core/broker/sharer.h"

// Requests that wait for a region, and reservations of names.

namespace gpumem::core {

void Sharer::map_or_wait(RequestId id, SessionId session_id, MapRegion terms, TimePoint now) {
  if (auto right = check(terms); !right) return answer_map(id, session_id, right.error());
  const auto session = state_.live(session_id);
  if (!session) return answer_map(id, session_id, session.error());
  const bool is_own = terms.owner.empty();
  if (is_own) terms.owner = (*session)->tenant_name;
  auto outcome = map_or_reserve(session_id, terms, now);
  if (!may_come(outcome) || terms.wait <= Duration::zero())
    return answer_map(id, session_id, std::move(outcome));
  const bool is_pressed = outcome.error().code == Code::kUnavailable;
  if (!is_pressed && terms.version != Regions::kNewest)
    return answer_map(id, session_id,
                      Error{Code::kInvalidArgument, "the newest version can be waited for, no other"});
  const TimePoint deadline = now + std::min(terms.wait, kLongestWait);
  auto waits = region_waits_.add(
      id, {session_id, (*session)->tenant, std::move(terms), is_own, is_pressed, now, deadline});
  if (!waits) return answer_map(id, session_id, waits.error());
  if (is_pressed) wait_for_pressure(id, now);
}

// The region is not published yet, or its memory is being asked back, which passes.
bool Sharer::may_come(const Result<MapOutcome>& outcome) const {
  if (outcome) return false;
  const bool lends = !state_.draining && state_.stopped_lending.empty();
  return outcome.error().code == Code::kNotFound || (outcome.error().code == Code::kUnavailable && lends);
}

void Sharer::wait_for_pressure(RequestId id, TimePoint now) {
  region_waits_.note_pressed(id);
  if (pressed_again_ == TimePoint::max()) pressed_again_ = now + kPressedPause;
}

// Looked at every so often: any event may end it.
void Sharer::serve_pressed_waits(TimePoint now) {
  if (pressed_again_ > now) return;
  pressed_again_ = TimePoint::max();
  for (const RequestId id : region_waits_.take_pressed()) region_waits_.note_due(id);
}

// kNotFound: there is nothing to be had yet.
Result<MapOutcome> Sharer::map_or_reserve(SessionId session, const MapRegion& terms, TimePoint now) {
  auto mapped = map_region(session, terms, now);
  if (mapped) return MapOutcome(std::move(*mapped));
  if (!terms.reserves() || mapped.error().code != Code::kNotFound) return mapped.error();
  return reserve(session, terms, now);
}

Result<MapOutcome> Sharer::reserve(SessionId session, const MapRegion& terms, TimePoint now) {
  if (const Reservation* others = reservations_.find(terms.owner, terms.name))
    return Error{Code::kNotFound, words_of(*others)};
  const TimePoint expires = now + std::min(terms.reserve_for, TimePoint::max() - now);
  auto reserved = reservations_.add({{}, session, terms.owner, terms.name, expires, terms.number}, now);
  if (!reserved) return reserved.error();
  crash_at(CrashPoint::kReserved);
  return MapOutcome(NameReserved{reserved->id, reserved->expires});
}

// For its own tenant.
std::string Sharer::words_of(const Reservation& reservation) const {
  const Peer& peer = state_.session(reservation.holder).peer;
  return "region '" + reservation.name + "' is reserved by session " +
         std::to_string(reservation.holder.value) + " (process " + std::to_string(peer.pid) + ", " +
         peer.command + "), and not published yet";
}

Result<void> Sharer::release_reservation(SessionId id, ReservationId reservation) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  const auto released = reservations_.take(id, reservation);
  if (!released)
    return Error{Code::kNotFound, "the session has no such reservation: it has ended, or is fulfilled"};
  note_due(released->owner, released->name);
  return {};
}

void Sharer::call_off_reservation(SessionId session, std::uint64_t number) {
  const auto reserved = reservations_.take_asked(session, number);
  if (!reserved) return;
  note_due(reserved->owner, reserved->name);
}

// One of those who wait for a name is told that it is the one to publish it; unless it has been published.
void Sharer::note_due(const std::vector<Reservation>& ended) {
  for (const Reservation& one : ended) note_due(one.owner, one.name);
}

// Nobody is looked at whose tenant gets nothing of it: waiting for others' names delays nobody. Nor who waits
// for a region of another device than this, if one is named.
void Sharer::note_due(const std::string& owner, const std::string& name, const std::string& device) {
  for (const TenantId tenant : region_waits_.tenants_for(owner, name)) {
    const bool reserves = state_.tenants.name(tenant) == owner && reservations_.find(owner, name) == nullptr;
    if (!reserves && !published_.is_shared_with(tenant, {.owner = owner, .name = name})) continue;
    for (const RequestId id : region_waits_.of({owner, name, tenant})) {
      const MapRegion& terms = region_waits_.find(id)->terms;
      if (device.empty() || terms.device.empty() || terms.device == device || terms.reserves())
        region_waits_.note_due(id);
    }
  }
}

// Another version may be published and removed again before all are served, or the name reserved.
bool Sharer::is_due(const RegionWait& wait) const {
  const MapRegion& terms = wait.terms;
  if (published_.is_shared_with(wait.tenant, terms)) return true;
  return terms.reserves() && reservations_.find(terms.owner, terms.name) == nullptr;
}

// So many at once, that no event takes long. The others have their turn with the next tick.
bool Sharer::serve_waits(TimePoint now) {
  bool served = false;
  for (std::size_t looked_at = 0; looked_at < kServedAtOnce; ++looked_at) {
    const auto id = region_waits_.take_due();
    if (!id) break;
    const RegionWait& wait = *region_waits_.find(*id);
    const bool is_for_one_version = wait.terms.version != Regions::kNewest;
    if (!is_due(wait) && !is_for_one_version) continue;
    auto outcome = map_or_reserve(wait.session, wait.terms, now);
    const bool is_gone = is_for_one_version && !outcome && outcome.error().code == Code::kNotFound;
    if (may_come(outcome) && !is_gone) {
      if (outcome.error().code == Code::kUnavailable) wait_for_pressure(*id, now);
      continue;
    }
    const SessionId session = region_waits_.take(*id)->session;
    answer_map(*id, session, std::move(outcome));
    served = true;
  }
  return served;
}

void Sharer::refuse_expired(TimePoint now) {
  for (const RequestId id : region_waits_.expired(now, kMostInARow)) {
    const auto wait = region_waits_.take(id);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - wait->since);
    const Reservation* const reserved =
        wait->terms.reserves() ? reservations_.find(wait->terms.owner, wait->terms.name) : nullptr;
    const MapRegion& terms = wait->terms;
    const Region* const newest = published_.find_for(wait->tenant, terms);
    const std::string why = wait->is_pressed      ? "its memory is being asked back"
                            : reserved != nullptr ? words_of(*reserved)
                            : newest ? "the newest is version " + std::to_string(newest->id.value)
                                     : "none was published that is shared with this tenant";
    const std::string sought =
        terms.newer_than == 0 ? "a region"
                              : "a version newer than " + std::to_string(terms.newer_than) + " of region";
    answer_map(
        id, wait->session,
        Error{Code::kDeadlineExceeded, "waited " + std::to_string(waited.count()) + " ms for " + sought +
                                           " '" + terms.name + "' of tenant '" + terms.owner + "': " + why});
  }
}

std::optional<TimePoint> Sharer::due(RequestId id) const {
  const RegionWait* const wait = region_waits_.find(id);
  return wait == nullptr ? std::nullopt : std::optional(wait->deadline);
}

void Sharer::answer_map(RequestId id, SessionId session, Result<MapOutcome> answer) {
  state_.outbox.emit(AnswerMap{id, session, std::move(answer)});
}

// ---- All of them ----

void Sharer::end(SessionId session) {
  region_waits_.drop_all_of(session);
  note_due(reservations_.take_all_of(session));
  answers_.drop(session);
}

void Sharer::cancel(RequestId id) { region_waits_.take(id); }

void Sharer::follow(const Session& session) {
  region_waits_.follow(session.id, session.tenant, session.tenant_name);
  static_cast<void>(reservations_.take_all_of(session.id));  // of names of the tenant that it belonged to
}

void Sharer::note_all_due() {
  for (const auto& [owner, name] : region_waits_.names()) note_due(owner, name);
}

void Sharer::tick(TimePoint now) {
  note_due(reservations_.take_expired(now, kMostInARow));
  serve_pressed_waits(now);
}

void Sharer::refuse_all(const Error& why) {
  for (const RequestId id : region_waits_.all()) answer_map(id, region_waits_.take(id)->session, why);
}

std::optional<TimePoint> Sharer::next_deadline() const {
  if (region_waits_.has_due()) return TimePoint{};
  std::optional<TimePoint> next;
  if (pressed_again_ != TimePoint::max()) next = pressed_again_;
  for (const auto one : {region_waits_.next_deadline(), reservations_.next_expiry()}) {
    if (one && (!next || *one < *next)) next = one;
  }
  return next;
}

}  // namespace gpumem::core
