#include "daemon/host/deadline_timer.h"

namespace gpumem::host {

void DeadlineTimer::arm(std::optional<core::TimePoint> next) {
  if (next == armed_) return;
  armed_ = next;
  if (!next) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*next);
  timer_.async_wait([this, awaited = *next](const boost::system::error_code& error) {
    // A wait that was replaced when it had expired already comes without an error.
    if (error || armed_ != awaited) return;
    armed_.reset();
    expired_();
  });
}

}  // namespace gpumem::host
