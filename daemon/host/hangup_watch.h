#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <unordered_map>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Tells when a socket has been shut down for both directions, by either end; of nothing else that happens on
/// it, so that traffic wakes nobody.
/// Threads  the loop's.
class HangupWatch {
 public:
  explicit HangupWatch(boost::asio::io_context& loop);

  /// Keeps `socket`, a duplicate, until `ended` has been called. Errors  kResourceExhausted.
  Result<void> add(UniqueFd socket, std::function<void()> ended);
  /// Stops watching: nobody is told any more.
  void stop();

 private:
  struct Watched {
    UniqueFd socket;
    std::function<void()> ended;
  };
  void await();
  void take_ended();

  boost::asio::posix::stream_descriptor epoll_;
  std::unordered_map<int, Watched> watched_;
};

}  // namespace gpumem::host
