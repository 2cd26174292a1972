#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/unique_fd.h"
#include "daemon/host/lane.h"

namespace gpumem::host {

/// Accepts connections and starts a lane for each. When descriptors run out it waits a little and goes on.
/// Threads  the loop's.
class LaneListener {
 public:
  /// `socket`  listening and non-blocking.
  LaneListener(boost::asio::io_context& loop, UniqueFd socket, LaneHandler& handler);
  void start() { await(); }
  void stop();

 private:
  void await();
  void accept();
  void pause(const Error& error);

  boost::asio::io_context& loop_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
  LaneHandler& handler_;
};

}  // namespace gpumem::host
