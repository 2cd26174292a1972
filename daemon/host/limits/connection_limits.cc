#include "daemon/host/limits/connection_limits.h"

#include <algorithm>
#include <string>

#include "daemon/core/words/refusals.h"

namespace gpumem::host {

Result<void> ApiConnections::check_room(const Caller& caller) const {
  if (caller.admin) return {};
  const MutexLock lock(mutex_);
  const auto user = by_user_.find(caller.peer.account());
  if (user != by_user_.end() && user->second >= limits_.of_a_user)
    return core::refusal(core::Bound::kApiConnections,
                         "this user has " + std::to_string(user->second) + " connections of gRPC already");
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

void SilentConnections::add(const void* key, std::uint64_t account, Cut cut) {
  const std::uint64_t number = next_++;
  entries_.emplace(key, Entry{account, number, std::move(cut)});
  Queue& own = by_user_[account];
  own.emplace(number, key);
  if (own.size() > limits_.of_a_user) {
    cut_oldest(account, "this user has more than " + std::to_string(limits_.of_a_user) +
                            " connections that have said nothing");
  } else if (entries_.size() > limits_.in_all) {
    const auto most = std::max_element(by_user_.begin(), by_user_.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    });
    cut_oldest(most->first, "there are more than " + std::to_string(limits_.in_all) +
                                " connections that have said nothing");
  }
}

void SilentConnections::remove(const void* key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  const auto user = by_user_.find(found->second.account);
  user->second.erase(found->second.number);
  if (user->second.empty()) by_user_.erase(user);
  entries_.erase(found);
}

void SilentConnections::cut_oldest(std::uint64_t account, const std::string& why) {
  const void* const oldest = by_user_.at(account).begin()->second;
  const Cut cut = std::move(entries_.at(oldest).cut);
  remove(oldest);
  core::count_refusal(core::Bound::kSilentConnections);
  cut(why);
}

}  // namespace gpumem::host
