#include "client/allocator/housekeeper.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "base/signals_blocked.h"

namespace gpumem::allocator {
namespace {

// Growths that are further apart are no trend.
constexpr std::chrono::milliseconds kTogether{200};
// Ahead of need: at most this part of what is committed, which bounds what it may cost in vain.
constexpr std::uint64_t kAheadPart = 64;

}  // namespace

std::uint64_t IdleWatch::tick(Clock::time_point now, std::uint64_t low_water) {
  next_ = now + tick_;
  low_[at_++ % low_.size()] = low_water;
  return at_ < low_.size() ? 0 : *std::ranges::min_element(low_);
}

void Trend::note(Clock::time_point now, std::uint64_t bytes) {
  if (now - last_ > kTogether) sum_ = growths_ = 0;
  last_ = now;
  sum_ += bytes;
  ++growths_;
}

std::uint64_t Trend::ahead(Clock::time_point now, std::uint64_t committed) const {
  if (growths_ < 2 || now - last_ > kTogether) return 0;
  return std::min(sum_ / 2, committed / kAheadPart);
}

Housekeeper::Housekeeper(std::chrono::milliseconds tick, std::function<void()> work)
    : tick_(tick), work_(std::move(work)) {
  const SignalsBlocked in_the_thread;
  try {
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "gpumem-house");
  } catch (const std::system_error&) {  // without it, what idles goes back only when the broker asks
  }
}

Housekeeper::~Housekeeper() {
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Housekeeper::ring() {
  {
    const std::scoped_lock lock(mutex_);
    rung_ = true;
  }
  changed_.notify_all();
}

void Housekeeper::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait_for(lock, tick_, [this] { return rung_ || ended_; });
    if (ended_) return;
    rung_ = false;
    lock.unlock();
    work_();
    lock.lock();
  }
}

}  // namespace gpumem::allocator
