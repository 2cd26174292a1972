#include "daemon/core/broker.h"

// Named memory: published, mapped, waited for, removed.

namespace gpumem::core {

Result<RegionId> Broker::publish(SessionId id, SliceId slice, std::span<const LeaseId> leases,
                                 RegionTerms terms, TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  if (state_.draining) return Error{Code::kUnavailable, "the broker is stopping"};
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  const std::string name = terms.name;
  auto published = lending_.publish(**session, slice, leases, std::move(terms), now);
  settle(now);  // others may have expired
  if (!published) return published;
  reservations_.fulfil(id, (*session)->tenant_name, name);
  note_due((*session)->tenant_name, name);
  serve_waits(now);
  return published;
}

Result<MappedRegion> Broker::map_region(SessionId id, const std::string& owner, const std::string& name,
                                        std::uint64_t version, TimePoint now, MapAs how) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  if (state_.draining) return Error{Code::kUnavailable, "the broker is stopping"};
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  const bool is_own = owner.empty() || owner == (*session)->tenant_name;
  if (how == MapAs::kOwner && !is_own)  // whether or not there is one
    return Error{Code::kPermissionDenied, "a region is taken over by its own tenant alone"};
  const auto found = lending_.mappable(**session, owner, name, version, now);
  if (!found) {
    settle(now);  // it may have expired
    return found.error();
  }
  auto mapped = map(**session, **found, now, how);
  if (mapped) settle(now);
  return mapped;
}

Result<void> Broker::export_region(SessionId id, const RegionHandleTerms& terms, const HandleBytes& bytes,
                                   TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  auto made = lending_.export_region(**session, terms, bytes, now);
  settle(now);  // the region may have expired
  return made;
}

Result<MappedRegion> Broker::map_handle(SessionId id, const HandleBytes& bytes, TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  if (state_.draining) return Error{Code::kUnavailable, "the broker is stopping"};
  if (!state_.stopped_lending.empty()) return Error{Code::kUnavailable, state_.stopped_lending};
  const auto found = lending_.mappable(**session, bytes, now);
  if (!found) {
    settle(now);  // it may have expired
    return found.error();
  }
  auto mapped = map(**session, **found, now, MapAs::kReader);
  if (mapped) lending_.use_handle(bytes);
  settle(now);
  return mapped;
}

// `region`  is mappable by the session.
Result<MappedRegion> Broker::map(Session& session, const Region& region, TimePoint now, MapAs how) {
  if (how == MapAs::kOwner) {
    if (auto able = lending_.check_adoption(session, region); !able) return able.error();
  }
  if (auto share = lending_.begin_share(session, region); !share) return share.error();
  for (const SessionId holder : lending_.holders_of(region)) {
    if (holder == session.id) continue;  // who has the memory is no new user of it
    if (auto ready = begin_import(session, state_.session(holder), region.device); !ready) {
      lending_.settle_shares();
      return ready.error();
    }
  }
  MappedRegion mapped{region.id, region.layout, region.digest, {}, std::nullopt};
  if (how == MapAs::kOwner) mapped.adopted = region.linger;
  mapped.imported = lending_.map_region(session, region, now);
  if (mapped.adopted) lending_.adopt_region(mapped.version);
  return mapped;
}

void Broker::take_back(SessionId session, const MappedRegion& mapped, TimePoint now) {
  if (mapped.adopted) lending_.keep_again(mapped.version, *mapped.adopted);
  static_cast<void>(release_import(session, mapped.imported.id, now));
}

Result<void> Broker::remove_region(SessionId id, const std::string& name, std::uint64_t version,
                                   TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  auto removed = lending_.remove_region(**session, name, version, now);
  settle(now);
  return removed;
}

Result<void> Broker::remove_region_of(const std::string& owner, const std::string& name,
                                      std::uint64_t version, TimePoint now) {
  auto removed = lending_.remove_region_of(owner, name, version, now);
  settle(now);
  return removed;
}

// ---- Waiting for a region ----

void Broker::map_or_wait(RequestId id, SessionId session_id, MapTerms terms, Duration wait, TimePoint now) {
  const auto session = state_.live(session_id);
  if (!session) return answer_map(id, session_id, session.error());
  const bool is_own = terms.owner.empty();
  if (is_own) terms.owner = (*session)->tenant_name;
  auto outcome = map_or_reserve(session_id, terms, now);
  if (!may_come(outcome) || wait <= Duration::zero()) return answer_map(id, session_id, std::move(outcome));
  const bool is_pressed = outcome.error().code == Code::kUnavailable;
  if (!is_pressed && terms.version != Regions::kNewest)
    return answer_map(id, session_id,
                      Error{Code::kInvalidArgument, "the newest version can be waited for, no other"});
  const TimePoint deadline = now + std::min(wait, TimePoint::max() - now);
  auto waits = region_waits_.add(
      id, {session_id, (*session)->tenant, std::move(terms), is_own, is_pressed, now, deadline});
  if (!waits) return answer_map(id, session_id, waits.error());
  if (is_pressed) wait_for_pressure(id, now);
}

// It is not published yet; or its memory is being asked back, which passes.
bool Broker::may_come(const Result<MapOutcome>& outcome) const {
  if (outcome) return false;
  const bool lends = !state_.draining && state_.stopped_lending.empty();
  return outcome.error().code == Code::kNotFound || (outcome.error().code == Code::kUnavailable && lends);
}

void Broker::wait_for_pressure(RequestId id, TimePoint now) {
  region_waits_.note_pressed(id);
  if (pressed_again_ == TimePoint::max()) pressed_again_ = now + kPressedPause;
}

// Looked at every so often: any event may end it.
void Broker::serve_pressed_waits(TimePoint now) {
  if (pressed_again_ > now) return;
  pressed_again_ = TimePoint::max();
  for (const RequestId id : region_waits_.take_pressed()) region_waits_.note_due(id);
}

// kNotFound: there is nothing to be had yet.
Result<MapOutcome> Broker::map_or_reserve(SessionId session, const MapTerms& terms, TimePoint now) {
  auto mapped = map_region(session, terms.owner, terms.name, terms.version, now, terms.how);
  if (mapped) return MapOutcome(std::move(*mapped));
  if (!terms.reserves() || mapped.error().code != Code::kNotFound) return mapped.error();
  return reserve(session, terms, now);
}

Result<MapOutcome> Broker::reserve(SessionId session, const MapTerms& terms, TimePoint now) {
  if (const Reservation* others = reservations_.find(terms.owner, terms.name))
    return Error{Code::kNotFound, words_of(*others)};
  const TimePoint expires = now + std::min(terms.reserve_for, TimePoint::max() - now);
  auto reserved = reservations_.add({{}, session, terms.owner, terms.name, expires, terms.number}, now);
  if (!reserved) return reserved.error();
  return MapOutcome(NameReserved{reserved->id, reserved->expires});
}

// For its own tenant.
std::string Broker::words_of(const Reservation& reservation) const {
  const Peer& peer = state_.session(reservation.holder).peer;
  return "region '" + reservation.name + "' is reserved by session " +
         std::to_string(reservation.holder.value) + " (process " + std::to_string(peer.pid) + ", " +
         peer.command + "), and not published yet";
}

Result<void> Broker::release_reservation(SessionId id, ReservationId reservation, TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  const auto released = reservations_.take(id, reservation);
  if (!released)
    return Error{Code::kNotFound, "the session has no such reservation: it has ended, or is fulfilled"};
  note_due(released->owner, released->name);
  serve_waits(now);
  return {};
}

void Broker::call_off_reservation(SessionId session, std::uint64_t number, TimePoint now) {
  const auto reserved = reservations_.take_asked(session, number);
  if (!reserved) return;
  note_due(reserved->owner, reserved->name);
  serve_waits(now);
}

// One of those who wait for a name is told that it is the one to publish it; unless it has been published.
void Broker::note_due(const std::vector<Reservation>& ended) {
  for (const Reservation& one : ended) note_due(one.owner, one.name);
}

// Nobody is looked at whose tenant gets nothing of it: waiting for others' names delays nobody.
void Broker::note_due(const std::string& owner, const std::string& name) {
  for (const TenantId tenant : region_waits_.tenants_for(owner, name)) {
    const bool reserves = state_.tenants.name(tenant) == owner && reservations_.find(owner, name) == nullptr;
    if (!reserves && !lending_.is_shared_with(tenant, owner, name, Regions::kNewest)) continue;
    for (const RequestId id : region_waits_.of({owner, name, tenant})) region_waits_.note_due(id);
  }
}

// Another version may be published and removed again before all are served, or the name reserved.
bool Broker::is_due(const RegionWait& wait) const {
  const MapTerms& terms = wait.terms;
  if (lending_.is_shared_with(wait.tenant, terms.owner, terms.name, terms.version)) return true;
  return terms.reserves() && reservations_.find(terms.owner, terms.name) == nullptr;
}

// So many at once, that no event takes long. The others have their turn with the next tick.
void Broker::serve_waits(TimePoint now) {
  for (std::size_t served = 0; served < kServedAtOnce;) {
    const auto id = region_waits_.take_due();
    if (!id) return;
    const RegionWait& wait = *region_waits_.find(*id);
    if (!is_due(wait)) continue;
    ++served;
    auto outcome = map_or_reserve(wait.session, wait.terms, now);
    if (may_come(outcome)) {
      if (outcome.error().code == Code::kUnavailable) wait_for_pressure(*id, now);
      continue;
    }
    const SessionId session = region_waits_.take(*id)->session;
    answer_map(*id, session, std::move(outcome));
  }
}

void Broker::refuse_expired_waits(TimePoint now) {
  for (const RequestId id : region_waits_.expired(now)) {
    const auto wait = region_waits_.take(id);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - wait->since);
    const Reservation* const reserved =
        wait->terms.reserves() ? reservations_.find(wait->terms.owner, wait->terms.name) : nullptr;
    const std::string why = wait->is_pressed      ? "its memory is being asked back"
                            : reserved != nullptr ? words_of(*reserved)
                                                  : "none was published that is shared with this tenant";
    answer_map(id, wait->session,
               Error{Code::kDeadlineExceeded, "waited " + std::to_string(waited.count()) +
                                                  " ms for a region '" + wait->terms.name + "' of tenant '" +
                                                  wait->terms.owner + "': " + why});
  }
}

std::optional<TimePoint> Broker::region_due(RequestId id) const {
  if (const RegionWait* wait = region_waits_.find(id)) return wait->deadline;
  if (const GenerationWait* wait = generation_waits_.find(id)) return wait->deadline;
  return std::nullopt;
}

void Broker::answer_map(RequestId id, SessionId session, Result<MapOutcome> answer) {
  state_.outbox.emit(AnswerMap{id, session, std::move(answer)});
}

}  // namespace gpumem::core
