#include "daemon/core/sharer.h"

// Memory that others have: published, mapped, imported. Who waits for it is in sharer_waits.cc.

namespace gpumem::core {

// A repeated request whose region has ended publishes again: the broker takes a region back if it cannot be
// written down.
Result<RegionId> Sharer::publish(SessionId id, const Publish& request, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  const auto made = answers_.find(id, request.number);
  const Region* const region = made ? lending_.regions().find(RegionId{*made}) : nullptr;
  if (region != nullptr && region->owner == (*session)->tenant && region->name == request.name)
    return region->id;
  auto published = lending_.publish(**session, request, now);
  if (!published) return published;
  answers_.note(id, request.number, published->value);
  note_published(**session, request.name, *published);
  return published;
}

Result<void> Sharer::remove_region(SessionId id, const RemoveRegion& request, TimePoint now) {
  const auto session = state_.live(id);
  if (!session) return session.error();
  if (answers_.find(id, request.number)) return {};
  auto removed = lending_.remove_region(**session, request.name, request.version, now);
  if (removed) answers_.note(id, request.number, request.version);
  return removed;
}

void Sharer::note_published(const Session& session, const std::string& name, RegionId published) {
  reservations_.fulfil(session.id, session.tenant_name, name);
  note_due(session.tenant_name, name, state_.policy.devices[lending_.regions().at(published).device].uuid);
}

Result<MappedRegion> Sharer::map_region(SessionId id, const MapRegion& terms, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  const bool is_own = terms.owner.empty() || terms.owner == (*session)->tenant_name;
  if (terms.how != MapAs::kReader && !is_own) {  // whether or not there is one
    return Error{Code::kPermissionDenied,
                 "a region is taken over, or mapped writable, by its own tenant alone"};
  }
  const auto found = lending_.mappable(**session, terms, now);
  if (!found) return found.error();
  return map(**session, **found, now, terms.how);
}

// `region`  is mappable by the session.
Result<MappedRegion> Sharer::map(Session& session, const Region& region, TimePoint now, MapAs how) {
  if (how == MapAs::kOwner) {
    if (auto able = lending_.check_adoption(session, region); !able) return able.error();
  }
  if (how == MapAs::kWriter) {
    if (auto able = lending_.check_writing(session, region); !able) return able.error();
  }
  for (const SessionId holder : lending_.holders_of(region)) {
    if (holder == session.id) continue;  // who has the memory is no new user of it
    if (auto ready = begin_import(session, state_.session(holder), region.device); !ready)
      return ready.error();
  }
  MappedRegion mapped{region.id, region.layout, region.digest, {}, std::nullopt};
  if (how == MapAs::kOwner) mapped.adopted = region.linger;
  mapped.imported = lending_.map_region(session, region, now);
  if (mapped.adopted) lending_.adopt_region(mapped.version);
  return mapped;
}

Result<Imported> Sharer::import_handle(SessionId id, const HandleBytes& bytes, TimePoint now) {
  const auto session = state_.borrower(id);
  if (!session) return session.error();
  const auto handle = lending_.redeemable(**session, bytes, now);
  if (!handle) return handle.error();
  if (auto ready = begin_import(**session, state_.session((*handle)->holder), (*handle)->device); !ready)
    return ready.error();
  return lending_.import_handle(**session, bytes, **handle);
}

// What is asked back by force gets no new users: nobody else would have been asked for it in time.
Result<void> Sharer::begin_import(Session& session, const Session& holder, DeviceIndex device) {
  if (reclaimer_.presses(holder, device))
    return Error{Code::kUnavailable, "the memory is being asked back; try again when that is over"};
  if (auto room = outside_.check_context(session, device); !room) return room;
  outside_.begin_context(session, device);
  return {};
}

}  // namespace gpumem::core
