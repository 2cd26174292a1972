#include "client/lane/lane_resumption.h"

#include <poll.h>
#include <sys/socket.h>
#include <algorithm>
#include <cerrno>

#include "base/crash_point.h"
#include "client/process/status.h"
#include "shm/pages.h"

namespace gpumem::client {

Result<Greeting> greeting_of(const lane::Welcome& body, LanePacket& packet) {
  static_assert(std::tuple_size_v<decltype(body.devices)> == kMaxDevices);
  if (body.version != lane::kVersion) {
    return Error{Code::kFailedPrecondition, "the broker speaks version " + std::to_string(body.version) +
                                                " of the lane, this library speaks " +
                                                std::to_string(lane::kVersion) +
                                                ": install the same version on both sides"};
  }
  if (body.session == 0) return protocol_error("a welcome without a session");
  if (packet.lost_descriptors) {
    return Error{Code::kResourceExhausted,
                 "this process has no room for the descriptors of its session; raise RLIMIT_NOFILE"};
  }
  std::vector<OwnFd>& descriptors = packet.descriptors;
  if (descriptors.size() != 3) {
    return protocol_error("a welcome with " + std::to_string(descriptors.size()) +
                          " descriptors instead of 3");
  }
  Greeting greeting{{body.session,
                     std::string(body.tenant.view()),
                     std::string(body.driver_folder.view()),
                     {},
                     body.job,
                     body.is_host_of_driver != 0},
                    std::move(descriptors[0]),
                    std::move(descriptors[1]),
                    std::move(descriptors[2])};
  for (std::uint64_t i = 0; i < body.count; ++i)
    greeting.welcome.devices.emplace_back(body.devices[i].view());
  return greeting;
}

void SessionHoldings::note_sent(std::string_view packet) {
  const auto frame = lane::parse(packet);
  if (!frame) return;
  switch (frame->header.kind) {
    case lane::Kind::kReturn:
      if (const auto body = lane::body_of<lane::Return>(*frame))
        for (std::uint64_t i = 0; i < body->count; ++i) leases_.erase(body->leases[i]);
      return;
    case lane::Kind::kCloseSlice:
      if (const auto body = lane::body_of<lane::CloseSlice>(*frame)) slices_.erase(body->slice);
      return;
    case lane::Kind::kReleaseImport:
      if (const auto body = lane::body_of<lane::ReleaseImport>(*frame)) imports_.erase(body->import);
      return;
    default: return;
  }
}

void SessionHoldings::note_received(const lane::Incoming& frame) {
  switch (frame.header.kind) {
    case lane::Kind::kGranted:
      if (const auto body = lane::body_of<lane::Granted>(frame))
        for (std::uint64_t i = 0; i < body->count; ++i) leases_.insert(body->leases[i].lease);
      return;
    case lane::Kind::kSliceOpened:
      if (const auto body = lane::body_of<lane::SliceOpened>(frame)) slices_.insert(body->slice);
      return;
    case lane::Kind::kImported:
      if (const auto body = lane::body_of<lane::Imported>(frame)) imports_.insert(body->import);
      return;
    case lane::Kind::kRegionMapped:
      if (const auto body = lane::body_of<lane::RegionMapped>(frame)) imports_.insert(body->import);
      return;
    default: return;
  }
}

std::vector<lane::Resume> SessionHoldings::frames(std::uint64_t session) const {
  std::vector<lane::ClaimedThing> things;
  for (const std::uint64_t id : slices_) things.push_back({lane::Claimed::kSlice, id});
  for (const std::uint64_t id : leases_) things.push_back({lane::Claimed::kLease, id});
  for (const std::uint64_t id : imports_) things.push_back({lane::Claimed::kImport, id});
  std::vector<lane::Resume> frames;
  for (std::size_t next = 0; next < things.size() || frames.empty();) {
    lane::Resume frame{};
    frame.oldest = lane::kVersion;
    frame.newest = lane::kVersion;
    frame.session = session;
    frame.count = std::min(things.size() - next, lane::kMostClaimed);
    std::copy_n(things.begin() + static_cast<std::ptrdiff_t>(next), frame.count, frame.things.begin());
    next += frame.count;
    frame.missing = things.size() - next;
    frames.push_back(frame);
  }
  return frames;
}

Result<std::optional<LaneResumption::Resumed>> LaneResumption::attempt(
    const SessionHoldings::Frames& holdings, Clock::time_point deadline) {
  if (!socket_) {
    const auto begun = begin(holdings, deadline);
    obstacle_ = begun || begun.error().code == Code::kUnavailable ? "" : begun.error().message;
    if (!begun) return std::optional<Resumed>();
  }
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

Result<void> LaneResumption::begin(const SessionHoldings::Frames& holdings, Clock::time_point deadline) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  if (auto reserved = reserve_descriptors(); !reserved) return reserved;
  auto connected = connect_lane(path_, std::max(left, milliseconds(1)));
  if (!connected) return connected.error();
  socket_.emplace(std::move(*connected));
  crash_at(CrashPoint::kClientReconnected);
  for (const lane::Resume& frame : holdings(before_.session)) {
    if (send(lane::Outgoing(frame, 1).bytes(), deadline)) continue;
    drop();  // the broker waits for the last frame
    return Error{Code::kUnavailable, "the next broker does not take the request"};
  }
  reached_ = true;
  crash_at(CrashPoint::kClientClaimed);
  return {};
}

Result<void> LaneResumption::reserve_descriptors() {
  constexpr std::size_t kOfWelcome = 3;
  while (reserved_.size() < kOfWelcome) {
    const NoFork no_fork;
    UniqueFd one(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));  // OwnFd knows it again, an eventfd not
    if (!one.valid()) return errno_error(errno, "this process has no room for the session's descriptors");
    reserved_.emplace_back(no_fork, std::move(one));
  }
  return {};
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
  if (now.devices == before_.devices && now.driver_folder == before_.driver_folder &&
      now.is_host_of_driver == before_.is_host_of_driver)
    return {};
  return Error{Code::kFailedPrecondition,
               "the broker was restarted with other devices or another driver; memory that is mapped stays "
               "usable; open a new session to allocate more"};
}

void LaneResumption::leave(std::string_view goodbye) {
  if (socket_) static_cast<void>(socket_->send(goodbye));
}

}  // namespace gpumem::client
