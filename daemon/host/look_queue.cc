#include "daemon/host/look_queue.h"

#include <algorithm>
#include <iterator>

#include "daemon/core/refusals.h"

namespace gpumem::host {

Result<void> LookQueue::add(core::Asker asker, Then then, Clock::time_point now) {
  if (waiting_ >= kMost)
    return core::refusal(core::Bound::kLooks, "too many wait for a look at the devices; try again later");
  User& user = users_.try_emplace(asker.account, User{now, {}}).first->second;
  if (user.waiting.size() >= kMostOfAUser) {
    return core::refusal(core::Bound::kLooks,
                         "this user has " + std::to_string(user.waiting.size()) +
                             " calls that wait for a look at the devices; wait for their answers");
  }
  if (asker.admin) user.turn = std::min(user.turn, now);
  user.waiting.push_back(std::move(then));
  ++waiting_;
  return {};
}

std::optional<LookQueue::Clock::time_point> LookQueue::next() const {
  std::optional<Clock::time_point> first;
  for (const auto& [account, user] : users_) {
    if (!user.waiting.empty() && (!first || user.turn < *first)) first = user.turn;
  }
  return first;
}

std::vector<LookQueue::Then> LookQueue::take_due(Clock::time_point now) {
  std::vector<Then> due;
  for (auto entry = users_.begin(); entry != users_.end();) {
    User& user = entry->second;
    if (user.turn <= now && user.waiting.empty()) {
      entry = users_.erase(entry);
      continue;
    }
    if (user.turn <= now) {
      waiting_ -= user.waiting.size();
      std::move(user.waiting.begin(), user.waiting.end(), std::back_inserter(due));
      user.waiting.clear();
      user.turn = now + kPause;
    }
    ++entry;
  }
  return due;
}

}  // namespace gpumem::host
