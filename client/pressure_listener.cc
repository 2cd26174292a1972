#include "client/pressure_listener.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <system_error>
#include <utility>

#include "base/signals_blocked.h"

namespace gpumem::client {
namespace {

Result<OwnFd> make_eventfd() {
  const NoFork no_fork;
  UniqueFd made(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!made.valid()) return errno_error(errno, "cannot make an eventfd");
  return OwnFd(no_fork, std::move(made));
}

}  // namespace

PressureListener::PressureListener(const BrokerPage& page, Lane& lane, const Welcome& welcome, OwnFd doorbell)
    : page_(page), lane_(lane), welcome_(welcome), doorbell_(std::move(doorbell)) {}

void PressureListener::end() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    thread.swap(thread_);
  }
  if (!thread.joinable()) return;
  const std::uint64_t once = 1;
  (void)!::write(stop_.get(), &once, sizeof once);
  if (thread.get_id() != std::this_thread::get_id()) return thread.join();
  own_->gone = true;
  thread.detach();
}

Result<void> PressureListener::start() {
  const MutexLock lock(mutex_);
  if (thread_.joinable()) return {};
  auto stop = make_eventfd();
  if (!stop) return stop.error();
  stop_ = std::move(*stop);
  const SignalsBlocked in_the_thread;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& failed) {
    return Error{Code::kResourceExhausted,
                 std::string("cannot start a thread to answer the broker: ") + failed.what()};
  }
  ::pthread_setname_np(thread_.native_handle(), "gpumem-pressure");
  return {};
}

void PressureListener::set_handler(PressureHandler handler) {
  auto replaced = handler ? std::make_shared<const PressureHandler>(std::move(handler)) : nullptr;
  const MutexLock lock(mutex_);
  handler_.swap(replaced);
  if (thread_.get_id() == std::this_thread::get_id()) return;
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

void PressureListener::run() {
  Own own;
  own_ = &own;
  while (await_doorbell()) {
    for (std::size_t i = 0; i < welcome_.devices.size(); ++i) {
      if (!answer(i)) return;
    }
  }
}

bool PressureListener::await_doorbell() const {
  std::array<pollfd, 2> polled{{{doorbell_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  for (;;) {
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return false;
    if (polled[1].revents != 0) return false;
    if (polled[0].revents == 0) continue;
    std::array<char, 4096> rings{};  // of an eventfd or a pipe, whichever the broker has sent
    const ssize_t heard = ::read(doorbell_.get(), rings.data(), rings.size());
    if (heard > 0) return true;
    if (heard == 0 || (errno != EAGAIN && errno != EINTR)) return false;  // the broker has ended
  }
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
  for (;;) {
    trim(device);
    if (!call_handler(device)) return false;
    trim(device);  // memory that the handler has declared unused
    const Request left = request(device);
    if (left.bytes.is_zero()) return true;
    if (!left.goes_beyond(asked)) break;
    asked = left;  // more was requested meanwhile
  }
  own_->spent[device] = asked;
  (void)lane_.spent(device);  // fails with the lane, which the session does not survive
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
  Own& own = *own_;
  call(*handler, {welcome_.devices[device], left.bytes, deadline_of(left.deadline)}, own);
  handler.reset();
  if (own.gone) return false;
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
  if (std::exchange(own.complained, true)) return;
  std::fprintf(stderr, "gpumem: the handler of pressure has thrown: %s; this counts as nothing given back\n",
               words.c_str());
}

}  // namespace gpumem::client
