#include "daemon/rpc/snapshots.h"

#include <algorithm>
#include <utility>

#include "base/thread_guards.h"

namespace gpumem::rpc {

Snapshots::Snapshots(core::Executor& executor) : executor_(executor) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { work(); });
}

Snapshots::~Snapshots() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Snapshots::take(User user, Copy copy) {
  {
    const MutexLock lock(mutex_);
    auto queue = std::find_if(ring_.begin(), ring_.end(), [&](const Queue& one) { return one.user == user; });
    if (queue == ring_.end())
      queue = ring_.insert(ring_.end(), {user});
    else if (pending_ >= kMostPending)
      return false;
    queue->copies.push_back(std::move(copy));
    ++pending_;
  }
  wake_.notify_one();
  return true;
}

bool Snapshots::next(Copy& copy) {
  const MutexLock lock(mutex_);
  while (ring_.empty() && !stopping_) wake_.wait(mutex_);
  if (ring_.empty()) return false;
  Queue& queue = ring_.front();
  copy = std::move(queue.copies.front());
  queue.copies.pop_front();
  --pending_;
  if (queue.copies.empty())
    ring_.pop_front();
  else
    ring_.splice(ring_.end(), ring_, ring_.begin());
  return true;
}

void Snapshots::work() {
  for (Copy copy; next(copy);) {
    Present present;
    const bool copied = executor_.post_and_wait(
        [&](core::Broker& broker, core::TimePoint now) { present = copy(broker, now); });
    if (copied) present();
  }
}

}  // namespace gpumem::rpc
