#include "daemon/core/lending/regions.h"

#include <algorithm>

#include "daemon/core/words/algorithms.h"
#include "daemon/core/words/refusals.h"

namespace gpumem::core {
namespace {

std::set<Audience> audiences_of(const Region& region) {
  std::set<Audience> audiences{{Sharing::kPrivate, region.owner}};
  switch (region.sharing) {
    case Sharing::kPrivate: break;
    case Sharing::kGroup: audiences.insert({Sharing::kGroup, region.owner}); break;
    case Sharing::kPublic:
      audiences.insert({{Sharing::kPublic, {}}, {Sharing::kPublic, region.owner}});
      break;
    case Sharing::kNamed:
      for (const std::string& reader : region.readers)
        audiences.insert({{Sharing::kNamed, {}, reader}, {Sharing::kNamed, region.owner, reader}});
  }
  return audiences;
}

// Its owner finds it among all of its own.
bool is_of_another(const Audience& audience) {
  return audience.owner && audience.sharing != Sharing::kPrivate;
}

}  // namespace

void RegionAudiences::add(const Region& region) {
  for (const Audience& one : audiences_of(region)) {
    regions_[one].insert(region.id);
    if (!is_of_another(one)) continue;
    auto& names = names_[one];
    names[{region.name, std::nullopt}].insert(region.id);
    names[{region.name, region.device}].insert(region.id);
  }
}

void RegionAudiences::remove(const Region& region) {
  for (const Audience& one : audiences_of(region)) {
    drop_from(regions_, one, region.id);
    if (!is_of_another(one)) continue;
    auto& names = names_.at(one);
    drop_from(names, {region.name, std::nullopt}, region.id);
    drop_from(names, {region.name, region.device}, region.id);
    if (names.empty()) names_.erase(one);
  }
}

std::optional<RegionId> RegionAudiences::find(std::span<const Audience> audiences,
                                              const Sought& sought) const {
  const Name name{sought.name, sought.device};
  std::optional<RegionId> found;
  for (const Audience& one : audiences) {
    const auto names = names_.find(one);
    if (names == names_.end()) continue;
    const auto ids = names->second.find(name);
    if (ids == names->second.end()) continue;
    const RegionId id = sought.version == 0 ? *ids->second.rbegin() : RegionId{sought.version};
    if (ids->second.contains(id)) found = std::max(found, std::optional(id));
  }
  return found;
}

std::vector<RegionId> RegionAudiences::page(std::span<const Audience> audiences, RegionId after,
                                            std::size_t most) const {
  std::vector<RegionId> ids;
  for (const Audience& one : audiences) {
    const auto found = regions_.find(one);
    if (found == regions_.end()) continue;
    auto next = found->second.upper_bound(after);
    for (std::size_t i = 0; i < most && next != found->second.end(); ++i, ++next) ids.push_back(*next);
  }
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.size() > most) ids.resize(most);
  return ids;
}

Checkpoint::Region checkpoint_of(const Region& region) {
  return {region.id,      region.name,   region.device,
          region.leases,  region.offset, region.bytes,
          region.layout,  region.digest, static_cast<std::uint64_t>(region.sharing),
          region.readers, region.since,  region.expires,
          region.kept,    region.linger, region.left};
}

std::string words_of(const Region& region) {
  return "'" + region.name + "', version " + std::to_string(region.id.value);
}

Event& describe(const Region& region, Event& event) {
  event.device = region.device;
  event.bytes = region.bytes;
  event.words = words_of(region);
  return event;
}

Result<RegionId> Regions::add(Region region, TimePoint now) {
  if (auto room = check_room(region); !room) return room.error();
  region.id = ids_.next();
  region.since = now;
  outbox_.record(checkpoint_of(region));
  if (region.sealed) outbox_.record(Checkpoint::RegionSealed{region.id});
  const RegionId id = region.id;
  put(std::move(region));
  return id;
}

Result<void> Regions::check_room(const Region& region) const {
  const auto found = count_of_.find(region.owner);
  const Count count = found == count_of_.end() ? Count{} : found->second;
  const auto is_full = [this](LeaseId lease) { return kept_of(lease).size() >= kMostKeptOfLease; };
  if (region.kept && std::ranges::any_of(region.leases, is_full)) {
    return refusal(Bound::kRegions, "an extent of it has " + std::to_string(kMostKeptOfLease) +
                                        " kept regions already, as many as it may; publish another part of "
                                        "the slice, or remove some (`gpumem regions`)");
  }
  if (count.regions < kMostOfTenant && count.parts + parts_of(region) <= kMostParts) return {};
  return refusal(Bound::kRegions, "the tenant has published " + std::to_string(count.regions) +
                                      " regions of " + std::to_string(count.parts) +
                                      " extents, and may publish " + std::to_string(kMostOfTenant) + " of " +
                                      std::to_string(kMostParts) +
                                      ", where a tenant that is named counts as " +
                                      std::to_string(kPartsOfReader) + "; remove some (`gpumem regions`)");
}

void Regions::restore(Region region) {
  ids_.skip(region.id);
  put(std::move(region));
}

void Regions::put(Region region) {
  by_name_[{region.owner, region.name}].insert(region.id);
  replicas_[{{region.owner, region.name}, region.device}].insert(region.id);
  for (const LeaseId lease : region.leases) {
    by_lease_[lease].insert(region.id);
    if (region.kept) kept_by_lease_[lease].insert(region.id);
  }
  if (region.ends() != TimePoint::max()) by_expiry_.emplace(region.ends(), region.id);
  audiences_.add(region);
  Count& count = count_of_[region.owner];
  ++count.regions;
  count.parts += parts_of(region);
  RegionTotal& total = totals_[{region.owner, region.device}];
  ++total.count;
  total.bytes += region.bytes;
  if (region.kept) {
    total.kept += region.bytes;
    ++total.kept_count;
  }
  regions_.emplace(region.id, std::move(region));
}

const Region* Regions::find(TenantId owner, const std::string& name, std::uint64_t version) const {
  const auto named = by_name_.find({owner, name});
  if (named == by_name_.end()) return nullptr;
  const RegionId id = version == kNewest ? *named->second.rbegin() : RegionId{version};
  return named->second.contains(id) ? &regions_.at(id) : nullptr;
}

const Region* Regions::newest_on(DeviceIndex device, TenantId owner, const std::string& name) const {
  const auto named = replicas_.find({{owner, name}, device});
  return named == replicas_.end() ? nullptr : &regions_.at(*named->second.rbegin());
}

Region Regions::remove(RegionId id) {
  outbox_.record(Checkpoint::RegionGone{id});
  return take(id);
}

Region Regions::take(RegionId id) {
  auto taken = regions_.extract(id);
  Region& region = taken.mapped();
  drop_from(by_name_, {region.owner, region.name}, id);
  drop_from(replicas_, {{region.owner, region.name}, region.device}, id);
  for (const LeaseId lease : region.leases) {
    drop_from(by_lease_, lease, id);
    if (region.kept) drop_from(kept_by_lease_, lease, id);
  }
  by_expiry_.erase({region.ends(), id});
  audiences_.remove(region);
  const auto count = count_of_.find(region.owner);
  count->second.parts -= parts_of(region);
  if (--count->second.regions == 0) count_of_.erase(count);
  const auto total = totals_.find({region.owner, region.device});
  total->second.bytes -= region.bytes;
  if (region.kept) {
    total->second.kept -= region.bytes;
    --total->second.kept_count;
  }
  if (--total->second.count == 0) totals_.erase(total);
  return std::move(region);
}

const std::set<RegionId>& Regions::found(const ByLease& by_lease, LeaseId lease) {
  static const std::set<RegionId> kNone;
  const auto found = by_lease.find(lease);
  return found == by_lease.end() ? kNone : found->second;
}

std::vector<Region> Regions::drop(LeaseId lease, Which which) {
  std::vector<Region> dropped;
  for (const RegionId id : std::set(of(lease)))
    if (which == Which::kAll || !at(id).kept) dropped.push_back(remove(id));
  return dropped;
}

void Regions::set_left(RegionId id, TimePoint left) {
  if (at(id).left == left) return;
  Region region = take(id);
  region.left = left;
  outbox_.record(checkpoint_of(region));
  put(std::move(region));
}

void Regions::adopt(RegionId id) {
  Region region = take(id);
  region.kept = false;
  region.linger = Duration::max();
  region.left = TimePoint::max();
  outbox_.record(checkpoint_of(region));
  put(std::move(region));
}

void Regions::keep(RegionId id, Duration linger) {
  Region region = take(id);
  region.kept = true;
  region.linger = linger;
  outbox_.record(checkpoint_of(region));
  put(std::move(region));
}

void Regions::set_owner(RegionId id, TenantId owner) {
  Region region = take(id);
  region.owner = owner;
  put(std::move(region));
}

std::vector<Region> Regions::drop_expired(TimePoint now) {
  std::vector<Region> dropped;
  while (dropped.size() < kMostInARow && !by_expiry_.empty() && by_expiry_.begin()->first <= now)
    dropped.push_back(remove(by_expiry_.begin()->second));
  return dropped;
}

std::optional<TimePoint> Regions::next_expiry() const {
  return by_expiry_.empty() ? std::nullopt : std::optional(by_expiry_.begin()->first);
}

std::vector<const Region*> Regions::page(RegionId after, std::size_t most) const {
  std::vector<const Region*> page;
  for (auto next = regions_.upper_bound(after); next != regions_.end() && page.size() < most; ++next)
    page.push_back(&next->second);
  return page;
}

std::vector<const Region*> Regions::page(std::span<const Audience> audiences, RegionId after,
                                         std::size_t most) const {
  std::vector<const Region*> page;
  for (const RegionId id : audiences_.page(audiences, after, most)) page.push_back(&regions_.at(id));
  return page;
}

RegionTotal Regions::total(TenantId owner, DeviceIndex device) const {
  const auto found = totals_.find({owner, device});
  return found == totals_.end() ? RegionTotal{} : found->second;
}

void Regions::add_to(Checkpoint& checkpoint) const {
  checkpoint.last.region = ids_.last();
  for (const auto& [id, region] : regions_) {
    checkpoint.regions.emplace(id, checkpoint_of(region));
    if (region.sealed) checkpoint.sealed.emplace(id, Checkpoint::RegionSealed{id});
  }
}

}  // namespace gpumem::core
