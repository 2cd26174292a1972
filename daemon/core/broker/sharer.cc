#include "daemon/core/broker/sharer.h"

#include <algorithm>

// Memory of others: published, mapped, imported. sharer_waits.cc has the sessions that wait for it.

namespace gpumem::core {

void LastAnswers::note(SessionId session, std::uint64_t request, std::uint64_t value) {
  if (request == 0) return;
  put(session, {request, value, false});
  outbox_.record(Checkpoint::Answer{session, request, value});
}

void LastAnswers::restore(const Checkpoint::Answer& answer) {
  put(answer.session, {answer.request, answer.value, true});
}

void LastAnswers::put(SessionId session, const Entry& entry) {
  auto& entries = by_session_[session];
  if (entries.size() == kMostOfSession) entries.pop_front();
  entries.push_back(entry);
}

// A number may be used again by a client that has had its answer: only what is asked again is found.
std::optional<std::uint64_t> LastAnswers::find(SessionId session, std::uint64_t request) const {
  const auto of = by_session_.find(session);
  if (request == 0 || of == by_session_.end()) return std::nullopt;
  const auto found = std::ranges::find_if(
      of->second, [&](const Entry& entry) { return entry.restored && entry.request == request; });
  return found == of->second.end() ? std::nullopt : std::optional(found->value);
}

void LastAnswers::add_to(Checkpoint& checkpoint) const {
  for (const auto& [session, entries] : by_session_) {
    for (const Entry& entry : entries)
      checkpoint.answers[session].push_back({session, entry.request, entry.value});
  }
}

// A repeated request whose region has ended publishes again: the broker takes a region back if it cannot be
// written down.
Result<RegionId> Sharer::publish(SessionId id, const Publish& request, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  const auto made = answers_.find(id, request.number);
  const Region* const region = made ? published_.regions().find(RegionId{*made}) : nullptr;
  if (region != nullptr && region->owner == (*session)->tenant && region->name == request.name)
    return region->id;
  auto published = published_.publish(**session, request, now);
  if (!published) return published;
  answers_.note(id, request.number, published->value);
  note_published(**session, request.name, *published);
  return published;
}

Result<void> Sharer::remove_region(SessionId id, const RemoveRegion& request, TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  if (answers_.find(id, request.number)) return {};
  auto removed = published_.remove_region(**session, request.name, request.version, now);
  if (removed) answers_.note(id, request.number, request.version);
  return removed;
}

void Sharer::note_published(const Session& session, const std::string& name, RegionId published) {
  reservations_.fulfil(session.id, session.tenant_name, name);
  note_due(session.tenant_name, name, state_.policy.devices[published_.regions().at(published).device].uuid);
}

Result<MappedRegion> Sharer::map_region(SessionId id, const MapRegion& terms, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  const bool is_own = terms.owner.empty() || terms.owner == (*session)->tenant_name;
  if (terms.how != MapAs::kReader && !is_own) {  // whether or not there is one
    return Error{Code::kPermissionDenied,
                 "a region is taken over, or mapped writable, by its own tenant alone"};
  }
  const auto found = published_.mappable(**session, terms, now);
  if (!found) return found.error();
  return map(**session, **found, now, terms.how);
}

// `region`  is mappable by the session.
Result<MappedRegion> Sharer::map(Session& session, const Region& region, TimePoint now, MapAs how) {
  if (how == MapAs::kOwner) {
    if (auto able = published_.check_adoption(session, region); !able) return able.error();
  }
  if (how == MapAs::kWriter) {
    if (auto able = published_.check_writing(session, region); !able) return able.error();
  }
  for (const auto& [holder, bytes] : published_.holders_of(region)) {
    if (holder == session.id) continue;  // the holder is no new user of the memory
    if (auto ready = begin_import(session, state_.session(holder), region.device); !ready)
      return ready.error();
  }
  MappedRegion mapped{region.id, region.layout, region.digest, {}, std::nullopt};
  if (how == MapAs::kOwner) mapped.adopted = region.linger;
  mapped.imported = published_.map_region(session, region, now);
  mapped.imported.is_read_only = how != MapAs::kWriter;
  if (mapped.adopted) published_.adopt_region(mapped.version);
  return mapped;
}

Result<Imported> Sharer::import_handle(SessionId id, const HandleBytes& bytes, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  const auto handle = exports_.redeemable(**session, bytes, now);
  if (!handle) return handle.error();
  if (auto ready = begin_import(**session, state_.session((*handle)->holder), (*handle)->device); !ready)
    return ready.error();
  return exports_.import_handle(**session, bytes, **handle);
}

// Memory that is asked back by force gets no new users: there would be no time left to ask them for it.
Result<void> Sharer::begin_import(Session& session, const Session& holder, DeviceIndex device) {
  if (reclaimer_.presses(holder, device))
    return Error{Code::kUnavailable, "the memory is being asked back; try again when that is over"};
  if (auto room = outside_.check_context(session, device); !room) return room;
  outside_.begin_context(session, device);
  return {};
}

}  // namespace gpumem::core
