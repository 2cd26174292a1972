#include "client/session/pressure_listener.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

#include "base/crash_point.h"
#include "base/thread_guards.h"

namespace gpumem::client {
namespace {

/// So long the background thread may be busy with a broker that is not there.
constexpr std::chrono::milliseconds kMendingPatience{100};

}  // namespace

PressureListener::PressureListener(const BrokerPage& page, Lane& lane, const Welcome& welcome, OwnFd doorbell)
    : page_(page), lane_(lane), welcome_(welcome), doorbell_(std::move(doorbell)) {}

void PressureListener::end() {
  if (task_.is_caller()) own_->gone = true;
  task_.end();
}

void PressureListener::set_handler(PressureHandler handler) {
  auto replaced = handler ? std::make_shared<const PressureHandler>(std::move(handler)) : nullptr;
  const MutexLock lock(mutex_);
  handler_.swap(replaced);
  if (task_.is_caller()) return;
  const std::uint64_t running = calls_;  // later calls belong to the new handler
  while (handling_ && calls_ == running) changed_.wait(mutex_);
}

void PressureListener::add(Trimmable& slice) {
  const MutexLock lock(mutex_);
  slices_.push_back(&slice);
}

void PressureListener::remove(Trimmable& slice) {
  const MutexLock lock(mutex_);
  std::erase(slices_, &slice);
  while (trimming_ == &slice) changed_.wait(mutex_);
}

bool PressureListener::answer_doorbell() {
  const std::size_t devices = welcome_.devices.size();
  if (!doorbell_.is_intact()) {  // a session that does not hear the broker would be ended for its silence
    lane_.abandon();
    return false;
  }
  if (!is_rung()) return lane_.mend(kMendingPatience);
  for (std::size_t i = 0; i < devices; ++i) {
    if (!answer(i)) return false;
  }
  return true;
}

// False: the broker has ended. Until the next one is there, this is how the session waits for it.
bool PressureListener::is_rung() const {
  std::array<char, 4096> rings{};  // of an eventfd or a pipe, whichever the broker has sent
  const ssize_t heard = ::read(doorbell_.get(), rings.data(), rings.size());
  return heard > 0 || (heard < 0 && (errno == EAGAIN || errno == EINTR));
}

// If the page cannot be read, its broker has died and asks for nothing.
PressureListener::Request PressureListener::request(std::size_t device) const {
  const auto figures = read_figures(page_);
  if (!figures || device >= figures->device_count) return {};
  return {{figures->devices[device].pressure}, figures->devices[device].pressure_deadline};
}

bool PressureListener::answer(std::size_t device) {
  Request asked = request(device);
  if (!asked.goes_beyond(own_->spent[device])) return true;  // the doorbell was for another device
  crash_at(CrashPoint::kClientWoken);
  for (;;) {
    trim(device);
    crash_at(CrashPoint::kClientTrimmed);
    if (!call_handler(device)) return false;
    trim(device);  // memory that the handler has declared unused
    const Request left = request(device);
    if (left.bytes.is_zero()) return true;
    if (!left.goes_beyond(asked)) break;
    asked = left;  // more was requested meanwhile
  }
  own_->spent[device] = asked;
  (void)lane_.spent(device);  // fails with the lane, which the session does not survive
  crash_at(CrashPoint::kClientSpent);
  return true;
}

void PressureListener::trim(std::size_t device) {
  Bytes left = request(device).bytes;
  for (Trimmable* slice : largest_first(device)) {
    if (left.is_zero()) return;
    {
      const MutexLock lock(mutex_);
      if (std::ranges::find(slices_, slice) == slices_.end()) continue;
      trimming_ = slice;
    }
    left = left.minus(slice->trim(left));
    const MutexLock lock(mutex_);
    trimming_ = nullptr;
    changed_.notify_all();
  }
}

std::vector<Trimmable*> PressureListener::largest_first(std::size_t device) {
  std::vector<std::pair<Bytes, Trimmable*>> found;  // the figures may change while they are sorted
  {
    const MutexLock lock(mutex_);
    for (Trimmable* slice : slices_) {
      if (slice->device_index() == device) found.emplace_back(slice->surplus(), slice);
    }
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &std::pair<Bytes, Trimmable*>::first);
  std::vector<Trimmable*> slices;
  for (const auto& [surplus, slice] : found) {
    if (!surplus.is_zero()) slices.push_back(slice);
  }
  return slices;
}

// The handler is destroyed before its return is announced, because it may own what it uses, even the session.
bool PressureListener::call_handler(std::size_t device) {
  const Request left = request(device);
  std::shared_ptr<const PressureHandler> handler;
  {
    const MutexLock lock(mutex_);
    if (!handler_ || left.bytes.is_zero()) return true;
    handler = handler_;
    handling_ = true;
    ++calls_;
  }
  const std::shared_ptr<Own> own = own_;
  call(*handler, {welcome_.devices[device], left.bytes, deadline_of(left.deadline)}, *own);
  handler.reset();
  if (own->gone) return false;
  const MutexLock lock(mutex_);
  handling_ = false;
  changed_.notify_all();
  return true;
}

void PressureListener::call(const PressureHandler& handler, const Pressure& pressure, Own& own) {
  std::string words;
  try {
    (void)handler(pressure);
    return;
  } catch (const std::exception& thrown) {
    words = thrown.what();
  } catch (...) {
    words = "something that is no std::exception";
  }
  if (std::exchange(own.reported, true)) return;
  const NoPipeSignal no_signal;
  std::fprintf(stderr, "gpumem: the handler of pressure has thrown: %s; this counts as nothing given back\n",
               words.c_str());
}

}  // namespace gpumem::client
