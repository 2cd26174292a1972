#include "daemon/host/control_lanes.h"

#include <algorithm>

#include "daemon/core/refusals.h"
#include "daemon/host/token.h"

namespace gpumem::host {

Result<void> ControlLanes::check_room(const Lane& lane) const {
  const auto count = [&](const auto& counts) {
    return static_cast<std::size_t>(std::count_if(lanes_.begin(), lanes_.end(),
                                                  [&](const auto& entry) { return counts(*entry.second); }));
  };
  const std::size_t of_admins = count([](const Lane& one) { return one.is_admin(); });
  if (lane.is_admin()) {
    if (of_admins < kMostOfAdministrators) return {};
    return core::refusal(core::Bound::kControlConnections,
                         "administrators have " + std::to_string(of_admins) +
                             " control connections already; end some of them");
  }
  const std::size_t of_user = count(
      [&](const Lane& one) { return !one.is_admin() && one.peer().account() == lane.peer().account(); });
  if (of_user >= kMostOfAUser) {
    return core::refusal(
        core::Bound::kControlConnections,
        "this user has " + std::to_string(of_user) + " control connections already; end some of them");
  }
  if (lanes_.size() - of_admins >= kMost) {
    return core::refusal(
        core::Bound::kControlConnections,
        "there are " + std::to_string(kMost) + " control connections already; try again later");
  }
  return {};
}

Result<std::string> ControlLanes::admit(std::shared_ptr<Lane> lane) {
  if (auto room = check_room(*lane); !room) return room.error();
  std::string token = make_token();
  lanes_.emplace(token, std::move(lane));
  return token;
}

void ControlLanes::remove(const Lane& lane) {
  std::erase_if(lanes_, [&](const auto& entry) { return entry.second.get() == &lane; });
}

}  // namespace gpumem::host
