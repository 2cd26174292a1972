#include "daemon/host/process_watch.h"

#include <utility>

#include "daemon/host/process.h"

namespace gpumem::host {

Result<void> ProcessWatch::watch(UniqueFd& pidfd) {
  boost::system::error_code error;
  process_.assign(pidfd.get(), error);
  if (error) return Error{Code::kResourceExhausted, "cannot watch the process: " + error.message()};
  static_cast<void>(pidfd.release());
  watching_ = true;
  return {};
}

// An event of a descriptor that is closed in the same round of the loop may be told of the descriptor that
// takes its place there. So the process is asked.
void ProcessWatch::await_end(std::function<void()> ended) {
  process_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this, ended = std::move(ended)](const boost::system::error_code& error) mutable {
                        if (error) return;
                        if (!has_ended(process_.native_handle())) return await_end(std::move(ended));
                        watching_ = false;
                        ended();
                      });
}

void ProcessWatch::stop() {
  watching_ = false;
  boost::system::error_code ignored;
  process_.close(ignored);
}

Result<void> ProcessWatch::signal(core::Signal signal) {
  if (process_.is_open()) return signal_process(process_.native_handle(), signal);
  return Error{Code::kFailedPrecondition, "the kernel does not let the broker signal this process"};
}

}  // namespace gpumem::host
