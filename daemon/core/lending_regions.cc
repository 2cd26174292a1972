#include <algorithm>

#include "daemon/core/lending.h"

// Named memory that sessions of other tenants map, too.

namespace gpumem::core {
namespace {

Result<void> check_terms(const Publish& terms, Bytes there) {
  if (auto range = check_range(terms.offset, terms.bytes, there); !range) return range;
  if (terms.layout > terms.bytes) {
    return Error{Code::kInvalidArgument,
                 "a layout of " + to_string(terms.layout) + " in a region of " + to_string(terms.bytes)};
  }
  if (std::min(terms.life, terms.linger) < Duration::zero())
    return Error{Code::kInvalidArgument, "a region lives for some time"};
  if (!terms.keep && terms.linger != Duration::zero())
    return Error{Code::kInvalidArgument, "only a kept region has a time after its last process"};
  if (terms.readers.size() > Regions::kMostReaders) {
    return Error{Code::kInvalidArgument, "a region names " + std::to_string(Regions::kMostReaders) +
                                             " tenants at most; share it with a group, or with everybody"};
  }
  if ((terms.sharing == Sharing::kNamed) == terms.readers.empty())
    return Error{Code::kInvalidArgument,
                 "tenants are named if a region is shared with named ones, and only then"};
  return {};
}

// The message is the same for a region that never existed: trying names reveals no foreign regions.
Error no_region(const std::string& owner, const std::string& name, std::uint64_t version) {
  return {Code::kNotFound, "there is no region '" + name + "'" +
                               (version == 0 ? "" : " of version " + std::to_string(version)) +
                               " of tenant '" + owner + "', or it is not shared with this one"};
}

Error no_newer(const std::string& owner, const Region& newest, std::uint64_t than) {
  return {Code::kNotFound, "region '" + newest.name + "' of tenant '" + owner +
                               "' has no version newer than " + std::to_string(than) +
                               ": the newest is version " + std::to_string(newest.id.value)};
}

Event& note(Outbox& outbox, Event::Kind kind, const Session& session, const Region& region, TimePoint now) {
  Event& event = outbox.note(kind, session, now);
  event.device = region.device;
  event.bytes = region.bytes;
  event.words = words_of(region);
  return event;
}

}  // namespace

Result<RegionId> Lending::publish(const Session& session, Publish request, TimePoint now) {
  const auto there = check_exported(session, request.slice, request.leases);
  if (!there) return there.error();
  if (auto in_hands = check_descriptors(request.leases); !in_hands) return in_hands.error();
  if (std::ranges::any_of(request.leases, [&](LeaseId id) { return lease(id).fabric; })) {
    return Error{Code::kFailedPrecondition,
                 "some of this memory was given out by fabric handles: others import it by those"};
  }
  if (request.bytes.is_zero()) request.bytes = there->minus(request.offset);
  if (auto right = check_terms(request, *there); !right) return right.error();
  drop_expired_regions(now);
  if (auto able = check_sealing(request.leases, request); !able) return able.error();
  auto published = regions_.add({.id = {},
                                 .owner = session.tenant,
                                 .name = std::move(request.name),
                                 .device = session.slices.at(request.slice).device,
                                 .leases = request.leases,
                                 .offset = request.offset,
                                 .bytes = request.bytes,
                                 .layout = request.layout,
                                 .digest = request.digest,
                                 .sharing = request.sharing,
                                 .readers = std::move(request.readers),
                                 .expires = request.expires(now),
                                 .kept = request.keep,
                                 .linger = request.lingers(),
                                 .sealed = request.sealed},
                                now);
  if (!published) return published;
  if (request.sealed) {
    for (const LeaseId id : request.leases) handles_.drop(id);
  }
  note(state_.outbox, Event::Kind::kPublished, session, regions_.at(*published), now);
  return published;
}

bool Lending::may_map(TenantId tenant, const Region& region) const {
  if (tenant == region.owner) return true;
  const auto is_below = [&](TenantId above) { return above && state_.tenants.is_below(tenant, above); };
  switch (region.sharing) {
    case Sharing::kPrivate: return false;
    case Sharing::kGroup: return is_below(state_.ledger.parent(region.owner));
    case Sharing::kPublic: return true;
    case Sharing::kNamed:
      return std::ranges::any_of(region.readers, [&](const std::string& name) {
        const Tenant* reader = state_.tenants.find(name);
        return reader != nullptr && is_below(reader->id);
      });
  }
  return false;
}

bool Lending::is_shared_with(TenantId tenant, const MapRegion& terms) const {
  const Region* const region = find_for(tenant, terms);
  return region != nullptr && region->id.value > terms.newer_than;
}

std::optional<RegionId> Lending::newest_for(TenantId tenant, const MapRegion& terms) const {
  const Region* const region = find_for(tenant, terms);
  return region == nullptr ? std::nullopt : std::optional(region->id);
}

// As may_map, the newest of all that the tenant may map. Another tenant's are looked up among those that are
// for this one, by the same steps whether there is such a tenant, or a region that is not for this one: the
// time of an answer tells nothing of it.
const Region* Lending::find_for(TenantId tenant, const MapRegion& terms) const {
  const Tenant* const known = state_.tenants.find(terms.owner);
  const TenantId owner = known == nullptr ? TenantId{} : known->id;
  if (owner == tenant) return find(owner, terms);
  std::optional<DeviceIndex> device;
  if (!terms.device.empty()) {
    const auto named = state_.find_device(terms.device);
    if (!named) return nullptr;
    device = *named;
  }
  const TenantId group = state_.ledger.parent(owner ? owner : tenant);
  const bool is_of_group = owner && group && state_.tenants.is_below(tenant, group);
  std::vector<Audience> audiences{{Sharing::kPublic, owner, {}},
                                  {Sharing::kGroup, is_of_group ? owner : TenantId{}, {}}};
  for (TenantId above = tenant; above; above = state_.ledger.parent(above))
    audiences.push_back({Sharing::kNamed, owner, state_.tenants.name(above)});
  return regions_.find(audiences, {terms.name, device, terms.version});
}

const Region* Lending::find(TenantId owner, const MapRegion& terms) const {
  if (terms.device.empty()) return regions_.find(owner, terms.name, terms.version);
  const auto device = state_.find_device(terms.device);
  if (!device) return nullptr;
  if (terms.version == Regions::kNewest) return regions_.newest_on(*device, owner, terms.name);
  const Region* region = regions_.find(owner, terms.name, terms.version);
  return region != nullptr && region->device == *device ? region : nullptr;
}

Result<const Region*> Lending::mappable(const Session& session, const MapRegion& terms, TimePoint now) {
  drop_expired_regions(now);
  const bool is_own = terms.owner.empty() || terms.owner == session.tenant_name;
  const Region* region = is_own ? find(session.tenant, terms) : find_for(session.tenant, terms);
  if (region != nullptr && region->id.value > terms.newer_than) {
    if (auto able = check_mapping(session, *region); !able) return able.error();
    return region;
  }
  const std::string& owner = is_own ? session.tenant_name : terms.owner;
  Error none = region == nullptr ? no_region(owner, terms.name, terms.version)
                                 : no_newer(owner, *region, terms.newer_than);
  if (!terms.device.empty()) none.message += "; asked for is one of device " + terms.device;
  return none;
}

Result<void> Lending::check_mapping(const Session& session, const Region& region) const {
  if (auto in_hands = check_descriptors(region.leases); !in_hands) return in_hands;
  for (const SessionId holder : holders_of(region)) {
    if (auto able = check_importer(session, state_.session(holder)); !able) return able;
  }
  return {};
}

std::set<SessionId> Lending::holders_of(const Region& region) const {
  std::set<SessionId> holders;
  for (const LeaseId id : region.leases) holders.insert(lease(id).session);
  return holders;
}

std::map<SessionId, Bytes> Lending::charges_of(const Region& region) const {
  std::map<SessionId, Bytes> charges;
  for (const LeaseId id : region.leases) charges[lease(id).session] += lease(id).extent.size;
  return charges;
}

Imported Lending::map_region(Session& session, const Region& region, TimePoint now) {
  Event& event = note(state_.outbox, Event::Kind::kMapped, session, region, now);
  event.words += ", of tenant '" + state_.tenants.name(region.owner) + "'";
  Imported imported = import(session, region.device, region.leases, region.offset, region.bytes);
  for (const auto& [id, extent] : imported.leases) {
    const Session& holder = state_.session(lease(id).session);
    if (holder.custodian && holder.tenant == session.tenant) pass(lease(id), session);
    note_use(id);
  }
  return imported;
}

Result<void> Lending::remove_region(const Session& session, const std::string& name, std::uint64_t version,
                                    TimePoint now) {
  drop_expired_regions(now);
  const Region* region = regions_.find(session.tenant, name, version);
  if (region == nullptr) return no_region(session.tenant_name, name, version);
  note(state_.outbox, Event::Kind::kRemoved, session, remove(region->id, now), now);
  return {};
}

Result<void> Lending::remove_region_of(const std::string& owner, const std::string& name,
                                       std::uint64_t version, TimePoint now) {
  drop_expired_regions(now);
  const Tenant* tenant = state_.tenants.find(owner);
  const Region* region = tenant == nullptr ? nullptr : regions_.find(tenant->id, name, version);
  if (region == nullptr) {
    return Error{Code::kNotFound, "tenant '" + owner + "' has no region '" + name + "'" +
                                      (version == 0 ? "" : " of version " + std::to_string(version))};
  }
  const Region removed = remove(region->id, now);
  Event& event = state_.outbox.note(Event::Kind::kRemoved, now);
  event.tenant = owner;
  event.device = removed.device;
  event.bytes = removed.bytes;
  event.words = words_of(removed) + ", by an administrator";
  return {};
}

void Lending::drop_expired_regions(TimePoint now) {
  for (const Region& region : regions_.drop_expired(now)) {
    let_go_unkept(region, now);
    Event& event = state_.outbox.note(Event::Kind::kExpired, now);
    event.tenant = state_.tenants.name(region.owner);
    event.device = region.device;
    event.bytes = region.bytes;
    event.words = words_of(region);
  }
}

// A region goes along with its memory. It ends if those who have parts of it come to belong to several
// tenants: nobody gets the name, and the bytes, of a tenant that he does not belong to. Answers those that
// end.
std::vector<Region> Lending::move_regions(const std::map<SessionId, TenantId>& owners, TimePoint now) {
  std::map<RegionId, SessionId> concerned;
  for (const auto& [session, owner] : owners) {
    for (const Lease& lease : state_.session(session).leases)
      for (const RegionId id : regions_.of(lease.id)) concerned.emplace(id, session);
  }
  std::vector<Region> lost;
  for (const auto& [id, session] : concerned) {
    const TenantId to = owners.at(session);
    const bool go_together = std::ranges::all_of(holders_of(regions_.at(id)), [&](SessionId holder) {
      const auto moved = owners.find(holder);
      return (moved == owners.end() ? state_.session(holder).tenant : moved->second) == to;
    });
    if (go_together) {
      regions_.set_owner(id, to);
    } else {
      lost.push_back(regions_.remove(id));
      note(state_.outbox, Event::Kind::kRegionLost, state_.session(session), lost.back(), now);
    }
  }
  return lost;
}

void Lending::drop_regions(const Lease& lease, Regions::Which which, TimePoint now) {
  for (const Region& region : regions_.drop(lease.id, which)) {
    note(state_.outbox, Event::Kind::kRegionLost, state_.session(lease.session), region, now);
    let_go_unkept(region, now);
  }
}

}  // namespace gpumem::core
