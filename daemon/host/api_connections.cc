#include "daemon/host/api_connections.h"

#include <string>

#include "daemon/core/refusals.h"

namespace gpumem::host {

Result<void> ApiConnections::check_room(const Caller& caller) const {
  if (caller.admin) return {};
  const MutexLock lock(mutex_);
  const auto user = by_user_.find(caller.peer.account());
  if (user != by_user_.end() && user->second >= limits_.of_a_user) {
    return core::refusal(core::Bound::kApiConnections,
                         "this user has " + std::to_string(user->second) + " connections of gRPC already");
  }
  if (counted_ >= limits_.in_all)
    return core::refusal(core::Bound::kApiConnections,
                         "there are " + std::to_string(counted_) + " connections of gRPC already");
  return {};
}

void ApiConnections::add(int number, Caller caller) {
  remove(number);
  const MutexLock lock(mutex_);
  if (!caller.admin) {
    ++counted_;
    ++by_user_[caller.peer.account()];
  }
  by_number_.emplace(number, std::move(caller));
}

void ApiConnections::remove(int number) {
  const MutexLock lock(mutex_);
  const auto connection = by_number_.extract(number);
  if (connection.empty() || connection.mapped().admin) return;
  --counted_;
  const auto user = by_user_.find(connection.mapped().peer.account());
  if (--user->second == 0) by_user_.erase(user);
}

std::optional<ApiConnections::Caller> ApiConnections::find(int number) const {
  const MutexLock lock(mutex_);
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t ApiConnections::size() const {
  const MutexLock lock(mutex_);
  return by_number_.size();
}

}  // namespace gpumem::host
