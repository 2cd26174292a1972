#include "daemon/host/control_lanes.h"

#include <algorithm>

#include "daemon/host/token.h"

namespace gpumem::host {

Result<std::string> ControlLanes::admit(std::shared_ptr<Lane> lane) {
  const auto of_user = std::count_if(lanes_.begin(), lanes_.end(), [&](const auto& entry) {
    return entry.second->peer().uid == lane->peer().uid;
  });
  if (static_cast<std::size_t>(of_user) >= kMostOfAUser) {
    return Error{Code::kResourceExhausted, "this user has " + std::to_string(of_user) +
                                               " control connections already; end some of them"};
  }
  if (lanes_.size() >= kMost) {
    return Error{Code::kResourceExhausted,
                 "there are " + std::to_string(kMost) + " control connections already; try again later"};
  }
  std::string token = make_token();
  lanes_.emplace(token, std::move(lane));
  return token;
}

void ControlLanes::remove(const Lane& lane) {
  std::erase_if(lanes_, [&](const auto& entry) { return entry.second.get() == &lane; });
}

const core::Peer* ControlLanes::find(std::string_view token) const {
  const auto found = lanes_.find(std::string(token));
  return found == lanes_.end() ? nullptr : &found->second->peer();
}

}  // namespace gpumem::host
