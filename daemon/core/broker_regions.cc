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
  if (published) serve_waits(region_waits_.of((*session)->tenant_name, name), now);
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
  const Region& region = **found;
  if (how == MapAs::kOwner) {
    if (auto able = lending_.check_adoption(**session, region); !able) return able.error();
  }
  for (const SessionId holder : lending_.holders_of(region)) {
    if (auto ready = begin_import(**session, state_.session(holder), region.device); !ready)
      return ready.error();
  }
  MappedRegion mapped{region.id, region.layout, region.digest, {}, std::nullopt};
  if (how == MapAs::kOwner) mapped.adopted = region.linger;
  mapped.imported = lending_.map_region(**session, region, now);
  if (mapped.adopted) lending_.adopt_region(mapped.version);
  settle(now);
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
  auto mapped = map_region(session_id, terms.owner, terms.name, terms.version, now, terms.how);
  const bool may_come = !mapped && mapped.error().code == Code::kNotFound && wait > Duration::zero();
  if (!may_come) return answer_map(id, session_id, std::move(mapped));
  if (terms.version != Regions::kNewest)
    return answer_map(id, session_id,
                      Error{Code::kInvalidArgument, "the newest version can be waited for, no other"});
  const TimePoint deadline = now + std::min(wait, TimePoint::max() - now);
  auto waits = region_waits_.add(id, {session_id, std::move(terms), is_own, now, deadline});
  if (!waits) answer_map(id, session_id, waits.error());
}

// Another version may be published and removed again before all are served.
void Broker::serve_waits(const std::vector<RequestId>& ids, TimePoint now) {
  for (const RequestId id : ids) {
    const RegionWaits::Wait* wait = region_waits_.find(id);
    if (wait == nullptr) continue;
    const MapTerms& terms = wait->terms;
    auto mapped = map_region(wait->session, terms.owner, terms.name, terms.version, now, terms.how);
    if (!mapped && mapped.error().code == Code::kNotFound) continue;
    const SessionId session = region_waits_.take(id)->session;
    answer_map(id, session, std::move(mapped));
  }
}

void Broker::refuse_expired_waits(TimePoint now) {
  for (const RequestId id : region_waits_.expired(now)) {
    const auto wait = region_waits_.take(id);
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - wait->since);
    answer_map(
        id, wait->session,
        Error{Code::kDeadlineExceeded, "waited " + std::to_string(waited.count()) + " ms for a region '" +
                                           wait->terms.name + "' of tenant '" + wait->terms.owner +
                                           "': none was published that is shared with this tenant"});
  }
}

std::optional<TimePoint> Broker::map_due(RequestId id) const {
  const RegionWaits::Wait* wait = region_waits_.find(id);
  return wait == nullptr ? std::nullopt : std::optional(wait->deadline);
}

void Broker::answer_map(RequestId id, SessionId session, Result<MappedRegion> answer) {
  state_.outbox.emit(AnswerMap{id, session, std::move(answer)});
}

}  // namespace gpumem::core
