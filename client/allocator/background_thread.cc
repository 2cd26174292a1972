#include "client/allocator/background_thread.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "base/signals_blocked.h"

namespace gpumem::allocator {
namespace {

// Growths further apart than this are no trend.
constexpr std::chrono::milliseconds kTogether{200};
// A growth ahead of need is at most this part of what is committed, which bounds the waste.
constexpr std::uint64_t kAheadPart = 64;

}  // namespace

std::uint64_t IdleTracker::tick(Clock::time_point now, std::uint64_t low_water) {
  next_ = now + tick_;
  low_[at_++ % low_.size()] = low_water;
  return at_ < low_.size() ? 0 : *std::ranges::min_element(low_);
}

void GrowthTrend::note(Clock::time_point now, std::uint64_t bytes) {
  if (now - last_ > kTogether) sum_ = growths_ = 0;
  last_ = now;
  sum_ += bytes;
  ++growths_;
}

std::uint64_t GrowthTrend::ahead(Clock::time_point now, std::uint64_t committed) const {
  if (growths_ < 2 || now - last_ > kTogether) return 0;
  return std::min(sum_ / 2, committed / kAheadPart);
}

BackgroundThread::BackgroundThread(std::chrono::milliseconds tick, std::function<void()> work)
    : tick_(tick), work_(std::move(work)) {
  const SignalsBlocked in_the_thread;
  try {
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "gpumem-purge");
  } catch (const std::system_error&) {  // without it, idle memory is returned only when the broker asks
  }
}

BackgroundThread::~BackgroundThread() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundThread::wake() {
  {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

void BackgroundThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, tick_, [this] { return woken_ || ended_; });
    if (ended_) return;
    woken_ = false;
    lock.unlock();
    work_();
    lock.lock();
  }
}

}  // namespace gpumem::allocator
