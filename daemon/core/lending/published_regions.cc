#include "daemon/core/lending/published_regions.h"

#include <algorithm>

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

// The message is the same for a region that never existed: trying names reveals no regions of others.
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

// Whether somebody uses it besides its slice, or another session ever has.
bool has_others(const Imports::Shared* shared) {
  return shared != nullptr && std::ranges::any_of(shared->users, [&](const auto& user) {
           return user.second != 0 || user.first != shared->holder;
         });
}

bool is_used(const Imports::Shared* shared) {
  return shared != nullptr &&
         std::ranges::any_of(shared->users, [](const auto& user) { return user.second != 0; });
}

}  // namespace

Result<RegionId> PublishedRegions::publish(const Session& session, Publish request, TimePoint now) {
  const auto there = leases_.check_exported(session, request.slice, request.leases);
  if (!there) return there.error();
  if (auto alone = leases_.check_no_fabric(request.leases); !alone) return alone.error();
  if (request.bytes.is_zero()) request.bytes = there->minus(request.offset);
  if (auto right = check_terms(request, *there); !right) return right.error();
  drop_expired(now);
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
  describe(regions_.at(*published), state_.note(Event::Kind::kPublished, session, now));
  return published;
}

// An importer by a handle, or by a region that is not sealed, can write to the memory. It may keep the
// mapping that it says it has released, as long as its process lives.
Result<void> PublishedRegions::check_sealing(std::span<const LeaseId> ids, const Publish& terms) const {
  for (const LeaseId id : ids) {
    const std::set<RegionId>& there = regions_.of(id);
    if (!there.empty() && regions_.is_sealed(id) != terms.sealed) {
      return Error{Code::kFailedPrecondition,
                   words_of(regions_.at(*there.begin())) + " is of the same memory and is " +
                       (terms.sealed ? "not " : "") + "sealed: regions of one memory all are, or none is"};
    }
    if (terms.sealed && there.empty() && has_others(state_.imports.find(id))) {
      return Error{Code::kFailedPrecondition,
                   "other processes have imported this memory. Until they end they can write to it, whatever "
                   "they say: seal other memory"};
    }
  }
  return {};
}

Result<void> PublishedRegions::check_writing(const Session& session, const Region& region) const {
  if (region.owner != session.tenant) {
    return Error{Code::kPermissionDenied,
                 words_of(region) + " is another tenant's: it is mapped for reading alone"};
  }
  if (!region.sealed) return {};
  return Error{Code::kFailedPrecondition,
               words_of(region) + " is sealed: its content does not change; publish a new version"};
}

bool PublishedRegions::is_shared_with(TenantId tenant, const MapRegion& terms) const {
  const Region* const region = find_for(tenant, terms);
  return region != nullptr && region->id.value > terms.newer_than;
}

// A region of another tenant is looked up among the audiences of this one. The steps are the same if that
// tenant does not exist, or has such a region for others alone: the time of an answer reveals neither.
const Region* PublishedRegions::find_for(TenantId tenant, const MapRegion& terms) const {
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

const Region* PublishedRegions::find(TenantId owner, const MapRegion& terms) const {
  if (terms.device.empty()) return regions_.find(owner, terms.name, terms.version);
  const auto device = state_.find_device(terms.device);
  if (!device) return nullptr;
  if (terms.version == Regions::kNewest) return regions_.newest_on(*device, owner, terms.name);
  const Region* region = regions_.find(owner, terms.name, terms.version);
  return region != nullptr && region->device == *device ? region : nullptr;
}

template <class Find>
const Region* PublishedRegions::find_unexpired(Find find, TimePoint now) {
  const Region* found = find();
  for (; found != nullptr && found->ends() <= now; found = find())
    note_expired(regions_.remove(found->id), now);
  return found;
}

Result<const Region*> PublishedRegions::mappable(const Session& session, const MapRegion& terms,
                                                 TimePoint now) {
  const bool is_own = terms.owner.empty() || terms.owner == session.tenant_name;
  const Region* const region = find_unexpired(
      [&] { return is_own ? find(session.tenant, terms) : find_for(session.tenant, terms); }, now);
  if (region != nullptr && region->id.value > terms.newer_than) {
    if (auto in_hands = leases_.check_descriptors(region->leases); !in_hands) return in_hands.error();
    for (const auto& [holder, bytes] : holders_of(*region)) {
      if (auto able = leases_.check_importer(session, state_.session(holder)); !able) return able.error();
    }
    return region;
  }
  const std::string& owner = is_own ? session.tenant_name : terms.owner;
  Error none = region == nullptr ? no_region(owner, terms.name, terms.version)
                                 : no_newer(owner, *region, terms.newer_than);
  if (!terms.device.empty()) none.message += "; asked for is one of device " + terms.device;
  return none;
}

std::map<SessionId, Bytes> PublishedRegions::holders_of(const Region& region) const {
  std::map<SessionId, Bytes> holders;
  for (const LeaseId id : region.leases) holders[leases_.at(id).session] += leases_.at(id).extent.size;
  return holders;
}

Imported PublishedRegions::map_region(Session& session, const Region& region, TimePoint now) {
  Event& event = describe(region, state_.note(Event::Kind::kMapped, session, now));
  event.words += ", of tenant '" + state_.tenants.name(region.owner) + "'";
  return leases_.import(session, region.device, region.leases, region.offset, region.bytes);
}

Result<void> PublishedRegions::remove_region(const Session& session, const std::string& name,
                                             std::uint64_t version, TimePoint now) {
  const Region* const region =
      find_unexpired([&] { return regions_.find(session.tenant, name, version); }, now);
  if (region == nullptr) return no_region(session.tenant_name, name, version);
  const Region removed = remove(region->id, now);
  describe(removed, state_.note(Event::Kind::kRemoved, session, now));
  return {};
}

Result<void> PublishedRegions::remove_region_of(const std::string& owner, const std::string& name,
                                                std::uint64_t version, TimePoint now) {
  const Tenant* const tenant = state_.tenants.find(owner);
  const Region* const region = find_unexpired(
      [&] { return tenant == nullptr ? nullptr : regions_.find(tenant->id, name, version); }, now);
  if (region == nullptr) {
    return Error{Code::kNotFound, "tenant '" + owner + "' has no region '" + name + "'" +
                                      (version == 0 ? "" : " of version " + std::to_string(version))};
  }
  const Region removed = remove(region->id, now);
  Event& event = describe(removed, state_.outbox.note(Event::Kind::kRemoved, now));
  event.tenant = owner;
  event.words += ", by an administrator";
  return {};
}

Region PublishedRegions::remove(RegionId id, TimePoint now) {
  Region removed = regions_.remove(id);
  leases_.let_go_unkept(removed, now);
  return removed;
}

void PublishedRegions::drop_expired(TimePoint now) {
  for (const Region& region : regions_.drop_expired(now)) note_expired(region, now);
}

void PublishedRegions::note_expired(const Region& removed, TimePoint now) {
  leases_.let_go_unkept(removed, now);
  Event& event = describe(removed, state_.outbox.note(Event::Kind::kExpired, now));
  event.tenant = state_.tenants.name(removed.owner);
}

std::vector<Region> PublishedRegions::move(const std::map<SessionId, TenantId>& owners, TimePoint now) {
  std::map<RegionId, SessionId> concerned;
  for (const auto& [session, owner] : owners) {
    for (const Lease& lease : state_.session(session).leases)
      for (const RegionId id : regions_.of(lease.id)) concerned.emplace(id, session);
  }
  std::vector<Region> lost;
  for (const auto& [id, session] : concerned) {
    const TenantId to = owners.at(session);
    const bool go_together = std::ranges::all_of(holders_of(regions_.at(id)), [&](const auto& holder) {
      const auto moved = owners.find(holder.first);
      return (moved == owners.end() ? state_.session(holder.first).tenant : moved->second) == to;
    });
    if (go_together) {
      regions_.set_owner(id, to);
    } else {
      lost.push_back(regions_.remove(id));
      describe(lost.back(), state_.note(Event::Kind::kRegionLost, state_.session(session), now));
    }
  }
  return lost;
}

// ---- Kept regions ----

// A kept region outlives the processes that have its memory. Once no process has it, its memory is charged
// to a detached session of its tenant, a session without a process.
void PublishedRegions::note_left(TimePoint now) {
  const std::set<RegionId> changed = regions_.take_changed();
  if (!changed.empty()) nothing_to_give_up_.clear();
  for (const RegionId id : changed) {
    const Region* region = regions_.find(id);
    if (region == nullptr || !region->kept) continue;
    const bool has_left = std::ranges::all_of(region->leases, [this](LeaseId lease) {
      return state_.session(leases_.at(lease).session).detached && !is_used(state_.imports.find(lease));
    });
    const TimePoint since = region->left == TimePoint::max() ? now : region->left;
    regions_.set_left(id, has_left ? since : TimePoint::max());
  }
}

Result<void> PublishedRegions::check_adoption(const Session& session, const Region& region) const {
  if (!region.kept) {
    return Error{Code::kFailedPrecondition,
                 "region '" + region.name + "' is not a kept one: it lives as long as its memory already"};
  }
  for (const auto& [id, bytes] : holders_of(region)) {
    const Session& holder = state_.session(id);
    if (holder.detached || id == session.id) continue;
    return Error{Code::kFailedPrecondition, "session " + std::to_string(id.value) + " (pid " +
                                                std::to_string(holder.peer.pid) + ") has region '" +
                                                region.name + "': it is taken over once that has ended"};
  }
  return {};
}

bool PublishedRegions::give_up_kept(TimePoint now) {
  bool gave_up = false;
  for (const SessionId id : std::vector(state_.detached_sessions.begin(), state_.detached_sessions.end())) {
    const Session& detached = state_.session(id);
    for (const auto& [device, request] : detached.asked) {
      const std::tuple asked(id, device, request.forced);
      if (request.own.is_zero() || nothing_to_give_up_.contains(asked)) continue;
      if (give_up_kept(detached, device, request, now))
        gave_up = true;
      else
        nothing_to_give_up_.insert(asked);  // until a kept region changes hands
    }
  }
  return gave_up;
}

// Unused regions go first, the longest unused one before the others. Regions in use go only by force: their
// readers are charged then.
bool PublishedRegions::give_up_kept(const Session& detached, DeviceIndex device,
                                    const ReclaimRequest& request, TimePoint now) {
  using Rank = std::tuple<bool, TimePoint, RegionId>;
  std::set<Rank> ranks;
  for (const Lease& one : detached.leases) {
    if (one.device != device || one.in_store) continue;
    for (const RegionId id : regions_.kept_of(one.id)) {
      const Region& region = regions_.at(id);
      const bool used = region.left == TimePoint::max();
      if (request.forced || !used) ranks.emplace(used, region.left, id);
    }
  }
  const Bytes before = detached.holding(device).held();
  const Bytes asked = request.own;
  for (const auto& [used, left, id] : ranks) {
    if (before - detached.holding(device).held() >= asked) break;
    const Region removed = remove(id, now);
    describe(removed, state_.note(Event::Kind::kRegionLost, detached, now)).words +=
        ", was kept beyond what its tenant is guaranteed, and others need the memory";
  }
  return !ranks.empty();
}

// ---- The restart ----

// A region needs all of its leases with one tenant, and their descriptors. A journal may have a region of
// memory that was given out by fabric handles; such a region is left out.
void PublishedRegions::restore(const Checkpoint::Region& from, DeviceIndex device, TimePoint now) {
  Bytes there;
  TenantId owner;
  bool is_in_hands = true;
  for (const LeaseId id : from.leases) {
    const Lease* one = leases_.find(id);
    if (one == nullptr || one->in_store || one->fabric) return;
    const TenantId tenant = state_.session(one->session).tenant;
    if (owner && owner != tenant) return;
    owner = tenant;
    there += one->extent.size;
    is_in_hands = is_in_hands && one->extent.id;
  }
  const bool has_time = from.kept ? from.linger > Duration::zero() : from.linger == Duration::max();
  const bool is_known_sharing = from.sharing <= static_cast<std::uint64_t>(Sharing::kNamed);
  if (!owner || from.expires <= now || !has_time || !is_known_sharing ||
      !check_range(from.offset, from.bytes, there))
    return;
  Region region{from.id,      owner,
                from.name,    device,
                from.leases,  from.offset,
                from.bytes,   from.layout,
                from.digest,  static_cast<Sharing>(from.sharing),
                from.readers, from.since,
                from.expires, from.kept,
                from.linger,  from.kept ? from.left : TimePoint::max()};
  if (is_in_hands) return regions_.restore(std::move(region));
  Event& event = describe(region, state_.outbox.note(Event::Kind::kRegionLost, now));
  event.tenant = state_.tenants.name(owner);
  event.words += ", since the broker was started without the descriptors of its memory: publish it again";
}

}  // namespace gpumem::core
