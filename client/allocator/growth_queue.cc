#include "client/allocator/growth_queue.h"

#include <utility>

namespace gpumem::allocator {

bool GrowthQueue::take_turn(Waiter& waiter, Clock::time_point deadline, Mutex& lock) {
  const int asks = waiter.waits ? 0 : 1;
  askers_ += asks;  // nothing below throws
  bool mine = false;
  while (!closed_ && !std::exchange(waiter.woken, false)) {
    if (mine = may_grow(waiter); mine) break;
    if (!waiter.waits) {
      if (growing_ != nullptr && growing_->waits) growing_->stop.request_stop();
      changed_.wait(lock);
    } else if (Clock::now() < deadline) {
      changed_.wait_until(lock, deadline);
    } else {
      break;
    }
  }
  askers_ -= asks;
  if (mine) {
    waiter.stop = {};
    growing_ = &waiter;
  } else {
    changed_.notify_all();
  }
  return mine;
}

void GrowthQueue::end_turn(const Waiter& waiter) {
  if (growing_ != &waiter) return;
  growing_ = nullptr;
  changed_.notify_all();
}

void GrowthQueue::begin_to_wait(Waiter& waiter) {
  waiter.waits = true;
  waiters_.push_back(&waiter);
}

void GrowthQueue::leave(Waiter& waiter) {
  if (std::erase(waiters_, &waiter) != 0) changed_.notify_all();
}

void GrowthQueue::wake(std::uint64_t free) {
  if (is_empty()) return;
  for (Waiter* waiter : waiters_) {
    if (waiter->bytes > free) continue;
    waiter->woken = true;
    waiter->stop.request_stop();
  }
  changed_.notify_all();
}

void GrowthQueue::close() {
  closed_ = true;
  if (growing_ != nullptr) growing_->stop.request_stop();
  changed_.notify_all();
}

void GrowthQueue::drain(Mutex& lock) {
  while (growing_ != nullptr || !is_empty()) changed_.wait(lock);
}

}  // namespace gpumem::allocator
