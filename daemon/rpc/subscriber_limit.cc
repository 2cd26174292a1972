#include "daemon/rpc/subscriber_limit.h"

namespace gpumem::rpc {

std::shared_ptr<void> SubscriberLimit::add(std::uint32_t uid) {
  const MutexLock lock(mutex_);
  const auto user = by_user_.try_emplace(uid, 0).first;
  if (count_ >= kMax || user->second >= kMaxPerUser) {
    if (user->second == 0) by_user_.erase(user);
    return nullptr;
  }
  ++count_;
  ++user->second;
  return {static_cast<void*>(this),
          [subscribers = shared_from_this(), uid](void*) { subscribers->remove(uid); }};
}

void SubscriberLimit::remove(std::uint32_t uid) {
  const MutexLock lock(mutex_);
  --count_;
  if (const auto user = by_user_.find(uid); --user->second == 0) by_user_.erase(user);
}

}  // namespace gpumem::rpc
