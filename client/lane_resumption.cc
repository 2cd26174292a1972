#include "client/lane_resumption.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/crash_point.h"
#include "client/status.h"

namespace gpumem::client {

Result<std::optional<LaneResumption::Resumed>> LaneResumption::attempt(const SessionClaim::Frames& claim,
                                                                       Clock::time_point deadline) {
  if (!socket_ && !begin(claim, deadline)) return std::optional<Resumed>();
  while (socket_->wait(POLLIN, deadline)) {
    LanePacket packet;
    reserved_.clear();
    const LaneSocket::Received received = socket_->receive(packet);
    if (received == LaneSocket::Received::kNothing) continue;
    if (received == LaneSocket::Received::kPacket) return take(packet);
    drop();  // this broker has ended, too
    return std::optional<Resumed>();
  }
  return std::optional<Resumed>();
}

bool LaneResumption::begin(const SessionClaim::Frames& claim, Clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  if (!reserve_descriptors()) return false;
  auto connected = connect_lane(path_, std::max(left, milliseconds(1)));
  if (!connected) return false;
  socket_.emplace(std::move(*connected));
  crash_at(CrashPoint::kClientReconnected);
  for (const lane::Resume& frame : claim(before_.session)) {
    if (send(lane::Outgoing(frame, 1).bytes(), deadline)) continue;
    drop();  // without its last frame a claim is none
    return false;
  }
  reached_ = true;
  crash_at(CrashPoint::kClientClaimed);
  return true;
}

bool LaneResumption::reserve_descriptors() {
  constexpr std::size_t kOfWelcome = 3;
  while (reserved_.size() < kOfWelcome) {
    const NoFork no_fork;
    UniqueFd one(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // OwnFd knows it again, an eventfd not
    if (!one.valid()) return false;
    reserved_.emplace_back(no_fork, std::move(one));
  }
  return true;
}

void LaneResumption::drop() {
  reached_ = false;
  socket_.reset();
}

bool LaneResumption::send(std::string_view frame, Clock::time_point deadline) const {
  for (;;) {
    const LaneSocket::Sent sent = socket_->send(frame);
    if (sent != LaneSocket::Sent::kFull) return sent == LaneSocket::Sent::kYes;
    if (!socket_->wait(POLLOUT, deadline)) return false;
  }
}

Result<std::optional<LaneResumption::Resumed>> LaneResumption::take(LanePacket& packet) {
  const auto frame = lane::parse(packet.view());
  if (!frame) return frame.error().in("the broker does not resume the session");
  if (const auto failed = lane::body_of<lane::Failed>(*frame)) {
    drop();
    Error error = error_of(*failed);
    if (error.code == Code::kUnavailable) return std::optional<Resumed>();
    return error.in("the broker does not resume the session");
  }
  const auto body = lane::body_of<lane::Welcome>(*frame);
  if (!body) return protocol_error(body.error().message);
  auto greeting = greeting_of(*body, packet);
  if (!greeting) return greeting.error();
  if (auto same = check(greeting->welcome); !same) return same.error();
  crash_at(CrashPoint::kClientWelcomed);
  Resumed resumed{std::move(*socket_), std::move(*greeting)};
  drop();
  return std::optional(std::move(resumed));
}

// Devices are named by their places, and the driver is open.
Result<void> LaneResumption::check(const Welcome& now) const {
  if (now.session != before_.session) return protocol_error("a welcome to another session");
  if (now.devices == before_.devices && now.driver_folder == before_.driver_folder) return {};
  return Error{Code::kFailedPrecondition,
               "the broker was restarted with other devices or another driver; memory that is mapped stays "
               "usable; open a new session to allocate more"};
}

void LaneResumption::leave(std::string_view goodbye) {
  if (socket_) static_cast<void>(socket_->send(goodbye));
}

}  // namespace gpumem::client
