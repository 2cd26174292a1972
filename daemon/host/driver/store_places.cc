#include "daemon/host/driver/store_places.h"

#include <algorithm>

namespace gpumem::host {

StorePlaces::Outcome StorePlaces::take(ExtentId extent, const Standing& standing) {
  free(extent);
  Outcome outcome{.has_place = true};
  if (placed_.size() >= most_) {
    outcome.loser = find_loser(standing);
    if (!outcome.loser) return {};
    free(*outcome.loser);
  }
  placed_.emplace(extent, standing);
  shares(standing.is_kept)[standing.tenant].push_back(extent);
  return outcome;
}

void StorePlaces::free(ExtentId extent) {
  const auto placed = placed_.extract(extent);
  if (placed.empty()) return;
  Shares& all = shares(placed.mapped().is_kept);
  const auto share = all.find(placed.mapped().tenant);
  std::erase(share->second, extent);
  if (share->second.empty()) all.erase(share);
}

// The latest of the tenant that has most: what is older is likelier to be missed.
std::optional<ExtentId> StorePlaces::find_loser(const Standing& for_whom) {
  const bool others_give_way = for_whom.is_kept && !others_.empty();
  const Shares& all = shares(for_whom.is_kept && !others_give_way);
  const auto largest = std::ranges::max_element(all, {}, [](const auto& one) { return one.second.size(); });
  if (largest == all.end()) return std::nullopt;
  const auto own = all.find(for_whom.tenant);
  const std::size_t has = own == all.end() ? 0 : own->second.size();
  if (!others_give_way && has + 1 >= largest->second.size()) return std::nullopt;
  return largest->second.back();
}

}  // namespace gpumem::host
