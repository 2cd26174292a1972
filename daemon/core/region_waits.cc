#include "daemon/core/region_waits.h"

#include "daemon/core/drop_from.h"
#include "daemon/core/refusals.h"

namespace gpumem::core {

Result<void> RegionWaits::add(RequestId id, Wait wait) {
  std::set<RequestId>& of_session = by_session_[wait.session];
  if (of_session.size() >= kMostOfSession) {
    return refusal(Bound::kRegions,
                   "the session waits for " + std::to_string(kMostOfSession) + " regions, as many as it may");
  }
  of_session.insert(id);
  by_name_[{wait.terms.owner, wait.terms.name}].insert(id);
  by_deadline_.emplace(wait.deadline, id);
  waits_.emplace(id, std::move(wait));
  return {};
}

std::optional<RegionWaits::Wait> RegionWaits::take(RequestId id) {
  auto taken = waits_.extract(id);
  if (taken.empty()) return std::nullopt;
  Wait& wait = taken.mapped();
  drop_name(id, wait);
  drop_from(by_session_, wait.session, id);
  by_deadline_.erase({wait.deadline, id});
  return std::move(wait);
}

const RegionWaits::Wait* RegionWaits::find(RequestId id) const {
  const auto found = waits_.find(id);
  return found == waits_.end() ? nullptr : &found->second;
}

void RegionWaits::drop_all_of(SessionId session) {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return;
  for (const RequestId id : std::set(found->second)) take(id);
}

void RegionWaits::follow(SessionId session, const std::string& tenant) {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return;
  for (const RequestId id : found->second) {
    Wait& wait = waits_.at(id);
    if (!wait.is_own) continue;
    drop_name(id, wait);
    wait.terms.owner = tenant;
    by_name_[{tenant, wait.terms.name}].insert(id);
  }
}

void RegionWaits::drop_name(RequestId id, const Wait& wait) {
  drop_from(by_name_, {wait.terms.owner, wait.terms.name}, id);
}

std::vector<RequestId> RegionWaits::of(const std::string& owner, const std::string& name) const {
  const auto found = by_name_.find({owner, name});
  if (found == by_name_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

std::vector<RequestId> RegionWaits::all() const {
  std::vector<RequestId> ids;
  for (const auto& [id, wait] : waits_) ids.push_back(id);
  return ids;
}

std::vector<RequestId> RegionWaits::expired(TimePoint now) const {
  std::vector<RequestId> ids;
  for (const auto& [deadline, id] : by_deadline_) {
    if (deadline > now) break;
    ids.push_back(id);
  }
  return ids;
}

std::optional<TimePoint> RegionWaits::next_deadline() const {
  return by_deadline_.empty() ? std::nullopt : std::optional(by_deadline_.begin()->first);
}

}  // namespace gpumem::core
