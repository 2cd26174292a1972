#include "daemon/host/lanes/session_link.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/crash_point.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {

void LaneLink::press(const BrokerFigures& figures) {
  pages_.publish(figures);  // the woken client reads the page at once
  crash_at(CrashPoint::kPressurePublished);
  doorbell_.ring();
  crash_at(CrashPoint::kPressureRung);
}

void LaneLink::send(std::string_view packet, const core::SentExtents& extents) {
  lane_->send(packet, extents);
}

std::optional<ClientFigures> LaneLink::client_figures(core::DeviceIndex device, Bytes charged) const {
  return read_figures(pages_.client_page(), device, charged.count);
}

Result<void> AwaitedLink::watch() {
  if (client_.pid == 0 || client_.started == 0)
    return Error{Code::kFailedPrecondition, "its process is of another PID namespace"};
  auto process = open_process(client_.pid, client_.started);
  if (!process) return process.error();
  return process_.watch(*process);
}

// An event that nobody signals shows no end.
ProcessHandle AwaitedLink::handle() {
  if (process_.is_watching()) return process_.handle();
  if (!stand_in_) stand_in_ = std::make_shared<const UniqueFd>(::eventfd(0, EFD_CLOEXEC));
  return stand_in_;
}

// Workers look at the number meanwhile. The kernel replaces its descriptor at once.
void AwaitedLink::resumed_by(const ProcessHandle& process) {
  if (!stand_in_ || !stand_in_->valid() || !process || !process->valid()) return;
  static_cast<void>(::dup3(process->get(), stand_in_->get(), O_CLOEXEC));
}

void AwaitedLink::await_end(std::function<void()> ended) {
  if (!process_.is_watching()) return;
  process_.await_end([self = shared_from_this(), ended = std::move(ended)] { ended(); });
}

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
