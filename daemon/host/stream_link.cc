#include "daemon/host/stream_link.h"

#include <cerrno>

#include "daemon/host/process.h"

namespace gpumem::host {

Result<std::shared_ptr<StreamLink>> StreamLink::create(boost::asio::io_context& loop,
                                                       ApiConnections::Caller client,
                                                       std::shared_ptr<core::SessionHolder> holder) {
  const std::shared_ptr<StreamLink> link(new StreamLink(loop, std::move(client), std::move(holder)));
  if (auto watched = link->watch(); !watched) return watched.error();
  return link;
}

Result<void> StreamLink::watch() {
  if (!client_.pidfd) return {};
  if (has_ended(client_.pidfd->get()))
    return Error{Code::kUnauthenticated, "the process that connected has ended"};
  UniqueFd own = duplicate_of(client_.pidfd->get());
  if (!own.valid()) return errno_error(errno, "cannot watch the process");
  descriptor_ = own.get();
  return process_.watch(own);
}

void StreamLink::await_end(std::function<void()> ended) {
  if (!process_.is_watching()) return;
  process_.await_end([self = shared_from_this(), ended = std::move(ended)] { ended(); });
}

Result<void> StreamLink::signal(core::Signal signal) {
  if (client_.peer.can_be_ended) return process_.signal(signal);
  return Error{Code::kFailedPrecondition, "the kernel does not let the broker signal this process"};
}

void StreamLink::stop() { close({Code::kUnavailable, "the broker is stopping"}); }

}  // namespace gpumem::host
