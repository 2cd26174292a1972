#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>

#include "daemon/core/words/types.h"

namespace gpumem::host {

/// Calls back at one deadline, which can be moved or dropped at any time.
/// Threads  the loop's.
class DeadlineTimer {
 public:
  DeadlineTimer(boost::asio::io_context& loop, std::function<void()> expired)
      : timer_(loop), expired_(std::move(expired)) {}

  /// From now on `next` is the deadline; none: there is none. Costs nothing if it is so already.
  void arm(std::optional<core::TimePoint> next) {
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

 private:
  boost::asio::steady_timer timer_;
  std::function<void()> expired_;
  std::optional<core::TimePoint> armed_;  // timer_.expiry() stays what it was after a cancel
};

}  // namespace gpumem::host
