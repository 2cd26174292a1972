#include "daemon/core/regions.h"

#include "daemon/core/refusals.h"

namespace gpumem::core {

Checkpoint::Region checkpoint_of(const Region& region) {
  return {region.id,      region.name,   region.device,
          region.leases,  region.offset, region.bytes,
          region.layout,  region.digest, static_cast<std::uint64_t>(region.sharing),
          region.readers, region.since,  region.expires};
}

Result<RegionId> Regions::add(Region region, TimePoint now) {
  const auto count = [&] {
    const auto found = count_of_.find(region.owner);
    return found == count_of_.end() ? 0 : found->second;
  };
  if (count() >= kMostOfTenant) drop_expired(region.owner, now);
  if (count() >= kMostOfTenant) {
    return refusal(Bound::kRegions, "the tenant has published " + std::to_string(count()) +
                                        " regions, as many as it may; remove some (`gpumem regions`)");
  }
  region.id = ids_.next();
  region.since = now;
  outbox_.record(checkpoint_of(region));
  const RegionId id = region.id;
  put(std::move(region));
  return id;
}

void Regions::restore(Region region) {
  ids_.skip(region.id);
  put(std::move(region));
}

void Regions::put(Region region) {
  by_name_[{region.owner, region.name}].insert(region.id);
  for (const LeaseId lease : region.leases) by_lease_[lease].insert(region.id);
  ++count_of_[region.owner];
  regions_.emplace(region.id, std::move(region));
}

const Region* Regions::find(TenantId owner, const std::string& name, std::uint64_t version,
                            TimePoint now) const {
  const auto named = by_name_.find({owner, name});
  if (named == by_name_.end()) return nullptr;
  for (auto id = named->second.rbegin(); id != named->second.rend(); ++id) {
    const Region& region = regions_.at(*id);
    const bool is_meant = version == kNewest || region.id.value == version;
    if (is_meant && region.expires > now) return &region;
  }
  return nullptr;
}

void Regions::remove(RegionId id) {
  outbox_.record(Checkpoint::RegionGone{id});
  take(id);
}

void Regions::take(RegionId id) {
  const auto taken = regions_.extract(id);
  const Region& region = taken.mapped();
  const auto named = by_name_.find({region.owner, region.name});
  named->second.erase(id);
  if (named->second.empty()) by_name_.erase(named);
  for (const LeaseId lease : region.leases) {
    const auto found = by_lease_.find(lease);
    found->second.erase(id);
    if (found->second.empty()) by_lease_.erase(found);
  }
  const auto count = count_of_.find(region.owner);
  if (--count->second == 0) count_of_.erase(count);
}

void Regions::drop(LeaseId lease) {
  const auto found = by_lease_.find(lease);
  if (found == by_lease_.end()) return;
  for (const RegionId id : boost::container::flat_set<RegionId>(found->second)) remove(id);
}

void Regions::set_owner(LeaseId lease, TenantId owner) {
  const auto found = by_lease_.find(lease);
  if (found == by_lease_.end()) return;
  for (const RegionId id : boost::container::flat_set<RegionId>(found->second)) {
    if (regions_.at(id).owner == owner) continue;
    Region region = regions_.at(id);
    take(id);
    region.owner = owner;
    put(std::move(region));
  }
}

void Regions::drop_expired(TenantId owner, TimePoint now) {
  std::vector<RegionId> expired;
  for (auto named = by_name_.lower_bound({owner, {}}); named != by_name_.end() && named->first.first == owner;
       ++named) {
    for (const RegionId id : named->second)
      if (regions_.at(id).expires <= now) expired.push_back(id);
  }
  for (const RegionId id : expired) remove(id);
}

std::vector<const Region*> Regions::page(RegionId after, std::size_t most) const {
  std::vector<const Region*> page;
  for (auto next = regions_.upper_bound(after); next != regions_.end() && page.size() < most; ++next)
    page.push_back(&next->second);
  return page;
}

void Regions::add_to(Checkpoint& checkpoint) const {
  for (const auto& [id, region] : regions_) checkpoint.regions.emplace(id, checkpoint_of(region));
}

}  // namespace gpumem::core
