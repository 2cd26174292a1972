#include "daemon/rpc/subscriber_limit.h"

namespace gpumem::rpc {

std::shared_ptr<void> SubscriberLimit::add(std::uint64_t account) {
  const MutexLock lock(mutex_);
  const auto user = by_user_.try_emplace(account, 0).first;
  if (count_ >= kMax || user->second >= kMaxPerUser) {
    if (user->second == 0) by_user_.erase(user);
    return nullptr;
  }
  ++count_;
  ++user->second;
  return {static_cast<void*>(this),
          [subscribers = shared_from_this(), account](void*) { subscribers->remove(account); }};
}

void SubscriberLimit::remove(std::uint64_t account) {
  const MutexLock lock(mutex_);
  --count_;
  if (const auto user = by_user_.find(account); --user->second == 0) by_user_.erase(user);
}

}  // namespace gpumem::rpc
