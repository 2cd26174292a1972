#include "daemon/rpc/seats.h"

namespace gpumem::rpc {

std::shared_ptr<void> Seats::take(std::uint32_t uid) {
  const MutexLock lock(mutex_);
  const auto user = by_user_.try_emplace(uid, 0).first;
  if (taken_ >= kMost || user->second >= kMostOfAUser) {
    if (user->second == 0) by_user_.erase(user);
    return nullptr;
  }
  ++taken_;
  ++user->second;
  return {static_cast<void*>(this), [seats = shared_from_this(), uid](void*) { seats->leave(uid); }};
}

void Seats::leave(std::uint32_t uid) {
  const MutexLock lock(mutex_);
  --taken_;
  if (const auto user = by_user_.find(uid); --user->second == 0) by_user_.erase(user);
}

}  // namespace gpumem::rpc
