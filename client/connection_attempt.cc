#include "client/connection_attempt.h"

namespace gpumem::client {

Result<std::shared_ptr<Connection>> ConnectionAttempt::open() {
  if (lane_ == nullptr) return begin();
  auto opened = finish(lane_->greet_on());
  return opened || lane_ != nullptr ? opened : begin();
}

Result<std::shared_ptr<Connection>> ConnectionAttempt::begin() {
  constexpr std::chrono::milliseconds kNoTime(1);
  auto lane = Connection::connect_lane(options_, is_full_ ? kNoTime : options_.timeout);
  is_full_ = !lane && lane.error().code == Code::kUnavailable;
  if (!lane) return lane.error();
  lane_ = std::move(*lane);
  return finish(lane_->greet(options_.label));
}

// The lane is kept as long as an answer may come on it.
Result<std::shared_ptr<Connection>> ConnectionAttempt::finish(Result<Greeting> greeting) {
  if (greeting) return Connection::of(std::move(lane_), std::move(*greeting));
  if (!lane_->awaits_greeting() || lane_->is_closed()) lane_.reset();
  return greeting.error();
}

}  // namespace gpumem::client
