#include "daemon/host/silent_connections.h"

#include <algorithm>

#include "daemon/core/refusals.h"

namespace gpumem::host {

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
