#include "sim/driver/events.h"

#include <cuda.h>

#include <utility>

namespace gpumem::sim {

void Event::record(Streams& streams, const StreamRef& stream) {
  captured_.reset();
  const auto time = std::make_shared<std::chrono::nanoseconds>();
  const std::uint64_t turn = shared != nullptr ? shared->begin() : 0;
  last_ = streams.submit_short(stream, [time, turn, page = shared] {
    *time = std::chrono::steady_clock::now().time_since_epoch();
    if (page != nullptr) page->finish(turn);
  });
  const bool is_timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  recorded_at_ = is_timed ? time : nullptr;
}

bool Event::is_done() const { return shared != nullptr ? shared->is_done() : last_.is_done(); }

Work Event::waiter() const {
  if (shared == nullptr) return [ticket = last_] { ticket.wait(); };
  return [page = shared, turn = shared->latest()] { page->wait(turn); };
}

void Event::hold_back(Streams& streams, const StreamRef& stream) const {
  if (shared == nullptr) streams.follow(stream, last_);
  if (is_done()) return;
  if (shared == nullptr) {
    streams.submit_short(stream, [] {}, {last_});
  } else {
    streams.submit(stream, waiter());
  }
}

std::uint64_t Events::create(std::uint64_t context, unsigned flags, std::shared_ptr<SharedEvent> shared) {
  const std::uint64_t handle = handles_.take();
  events_.try_emplace(handle, context, flags, std::move(shared));
  return handle;
}

void Events::destroy(std::uint64_t handle) {
  if (events_.erase(handle) == 1) handles_.give_back(handle);
}

void Events::destroy_all_of(std::uint64_t context) {
  std::erase_if(events_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    handles_.give_back(entry.first);
    return true;
  });
}

Event* Events::find(std::uint64_t handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : &found->second;
}

Event* Events::named(std::uint64_t handle) {
  Event* const found = find(handle);
  if (found == nullptr) handles_.check_not_destroyed(handle, "event");
  return found;
}

}  // namespace gpumem::sim
