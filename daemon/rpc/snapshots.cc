#include "daemon/rpc/snapshots.h"

#include <future>
#include <memory>
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

bool Snapshots::take(Copy copy) {
  {
    const MutexLock lock(mutex_);
    if (pending_.size() >= kMostPending) return false;
    pending_.push_back(std::move(copy));
  }
  wake_.notify_one();
  return true;
}

bool Snapshots::next(Copy& copy) {
  const MutexLock lock(mutex_);
  while (pending_.empty() && !stopping_) wake_.wait(mutex_);
  if (pending_.empty()) return false;
  copy = std::move(pending_.front());
  pending_.pop_front();
  return true;
}

void Snapshots::work() {
  for (Copy copy; next(copy);) {
    // If the core has stopped it drops the work, and with that the promise.
    auto copied = std::make_shared<std::promise<Present>>();
    std::future<Present> present = copied->get_future();
    executor_.post([copied = std::move(copied), &copy](core::Broker& broker, core::TimePoint now) {
      copied->set_value(copy(broker, now));
    });
    try {
      present.get()();
    } catch (const std::future_error&) {
    }
  }
}

}  // namespace gpumem::rpc
