#include "daemon/core/region_audiences.h"

#include <algorithm>

#include "daemon/core/drop_from.h"
#include "daemon/core/regions.h"

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

}  // namespace gpumem::core
