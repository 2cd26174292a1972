#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>

#include "base/unique_fd.h"
#include "daemon/core/effects.h"

namespace gpumem::host {

/// The watch over one process: tells when it has ended, and sends it signals.
/// Threads  the loop's.
class ProcessWatch {
 public:
  explicit ProcessWatch(boost::asio::io_context& loop) : process_(loop) {}

  /// Takes over `pidfd`, a handle of the process. Errors  kResourceExhausted: the kernel can watch no more;
  /// it stays the caller's.
  Result<void> watch(UniqueFd& pidfd);
  /// Calls `ended` once the process has ended, unless stop() comes first. `ended` holds whoever holds this.
  void await_end(std::function<void()> ended);
  /// Watches a process that has not been seen to end.
  bool is_watching() const { return watching_; }
  void stop();

  /// Sends `signal` to the process itself, whose pid may be another's by now.
  /// Errors  kNotFound: it is gone; kFailedPrecondition: no process is watched; kPermissionDenied.
  Result<void> signal(core::Signal signal);

 private:
  boost::asio::posix::stream_descriptor process_;
  bool watching_ = false;
};

}  // namespace gpumem::host
