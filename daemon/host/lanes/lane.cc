#include "daemon/host/lanes/lane.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>

#include "base/crash_point.h"
#include "daemon/host/limits/socket_disposal.h"
#include "proto/lane/frames.h"

namespace gpumem::host {
namespace {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

constexpr auto kGreetingPatience = std::chrono::seconds(10);
constexpr auto kReadingPatience = std::chrono::seconds(10);
// A client is sent offers only for what it asked; this many unread messages means that it does not read.
constexpr std::size_t kMostUnread = 1024;
// With more bytes than this to send, no frame of the client is read: each may bring more.
constexpr std::size_t kMuchToSend = std::size_t{8} << 10;
// Bytes in the kernel, which counts about 2 KiB for a packet of half that.
constexpr int kMuchUnread = 64 * 1024;

Result<void> too_many_in_flight() {
  return Error{Code::kResourceExhausted, "too many descriptors of its user are unread"};
}

// The answer in place of one whose memory the client has let go of before it could be sent.
std::string withdrawn(std::string_view answer) {
  const auto frame = lane::parse(answer);
  const Error error{Code::kCancelled, "the request was withdrawn"};
  return std::string(lane::Outgoing(lane::failed_with(error), frame ? frame->header.request : 0).bytes());
}

bool is_full_socket(const Error& error) { return error.code == Code::kDeadlineExceeded; }
bool is_closed_to_us(const Error& error) { return error.code == Code::kUnavailable; }
// What is in the way of a send for now only.
bool passes(const Error& error) { return is_full_socket(error) || error.code == Code::kResourceExhausted; }

}  // namespace

Lane::Lane(asio::io_context& loop, LaneHandler& handler, SocketDisposal& disposal, UnreadDescriptors& unread)
    : handler_(handler),
      disposal_(disposal),
      unread_(unread),
      socket_(loop),
      process_(loop),
      patience_(loop) {}

Result<std::shared_ptr<Lane>> Lane::create(asio::io_context& loop, Connection connection,
                                           LaneHandler& handler, SocketDisposal& disposal,
                                           UnreadDescriptors& unread) {
  const std::shared_ptr<Lane> lane(new Lane(loop, handler, disposal, unread));
  if (auto adopted = lane->adopt(connection); !adopted) {
    lane->ended_ = true;
    disposal.close(std::move(connection.socket));
    return adopted.error();
  }
  return lane;
}

// Of one that has ended there is nothing to close; the others go with the loop.
Lane::~Lane() {
  if (socket_.is_open()) disposal_.close(UniqueFd(socket_.release()));
}

// Takes the descriptors over if both can be watched; otherwise they stay where they are.
Result<void> Lane::adopt(Connection& connection) {
  peer_ = std::move(connection.peer.peer);
  admin_ = connection.admin;
  if (UniqueFd& pidfd = connection.peer.pidfd; pidfd.valid()) {
    if (auto watched = process_.watch(pidfd); !watched) return watched;
  }
  boost::system::error_code error;
  socket_.assign(connection.socket.get(), error);
  if (error) return Error{Code::kResourceExhausted, "cannot watch the connection: " + error.message()};
  static_cast<void>(connection.socket.release());
  return {};
}

void Lane::start() {
  patience_.expires_after(kGreetingPatience);
  patience_.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
    if (const auto lane = self.lock(); lane && !error) lane->close_in_turn("it did not greet in time");
  });
  if (process_.is_watching()) {
    process_.await_end([self = shared_from_this()] {
      self->end();
      self->handler_.process_exited(self);
    });
  }
  readable_since_ = std::chrono::steady_clock::now();
  handler_.readable(shared_from_this());  // a client greets as soon as it has connected
}

void Lane::await_message() {
  if (std::exchange(awaits_message_, true)) return;
  socket_.async_wait(Descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->awaits_message_ = false;
                       if (error || self->ended_) return;
                       self->readable_since_ = std::chrono::steady_clock::now();
                       self->handler_.readable(self);
                     });
}

bool Lane::take_frame() {
  if (ended_) return false;
  std::array<char, lane::kMostBytes> buffer;
  auto bytes = next_message(buffer);
  // Of a client that closes with offers unread the kernel reports a reset, once, before its last words.
  if (!bytes && bytes.error().code == Code::kUnavailable && !std::exchange(reset_, true))
    bytes = next_message(buffer);
  if (!bytes) {
    if (bytes.error().code == Code::kDeadlineExceeded)
      await_message();
    else
      close(bytes.error().message);
    return false;
  }
  if (bytes->empty()) {
    released_ = released_ || lives_on();
    end();
    return false;
  }
  const core::TimePoint taken = std::chrono::steady_clock::now();
  handler_.frame(shared_from_this(), *bytes);
  readable_since_ = taken;  // for the next one, which may have come since
  is_paused_ = !ended_ && to_send_ > kMuchToSend;
  return !ended_ && !is_paused_;
}

Result<std::string_view> Lane::next_message(std::span<char> buffer) {
  if (disposal_.foreign_descriptors()) {
    std::array<std::byte, 1> start{};
    const Readable next = look_at(socket_.native_handle(), start);
    if (next.bytes < 0) return errno_error(errno, "cannot receive");
    if (next.descriptors) return Error{Code::kInvalidArgument, "its message brings descriptors"};
  }
  return receive_bytes(socket_.native_handle(), buffer);
}

void Lane::welcome(SessionId session, std::string_view frame, std::span<const int> descriptors) {
  session_ = session;
  patience_.cancel();
  if (auto sent = send_packet(socket_.native_handle(), frame, descriptors); !sent)
    return close(sent.error().message);
  welcome_descriptors_ += descriptors.size();
}

void Lane::refuse(const Error& error, std::uint64_t request) {
  send(lane::Outgoing(lane::failed_with(error), request).bytes());
  close("refused: " + error.message);
}

void Lane::send(std::string_view packet, const core::SentExtents& extents) {
  if (ended_ || is_unheard_) return;
  if (outbox_.empty()) {
    auto sent = try_to_send(packet, extents);
    if (sent) return;
    if (is_closed_to_us(sent.error())) return stop_sending();
    if (!passes(sent.error())) return close(sent.error().message);
    await_room(sent.error());
  }
  outbox_.push_back({std::string(packet), extents});
  to_send_ += packet.size();
  if (outbox_.size() > kMostUnread) close("it does not read its lane");
}

bool Lane::is_behind() {
  int unread = 0;
  return !outbox_.empty() || ::ioctl(socket_.native_handle(), SIOCOUTQ, &unread) != 0 || unread > kMuchUnread;
}

bool Lane::has_unread() {
  if (ended_) return false;
  pollfd socket{socket_.native_handle(), POLLIN, 0};
  return ::poll(&socket, 1, 0) == 1;
}

// The descriptors of welcomes are counted once their connection is closed: before, they are fewer than the
// broker has open for their sessions.
Result<void> Lane::try_to_send(std::string_view packet, std::span<const int> descriptors) {
  if (fails_at(CrashPoint::kSend)) return too_many_in_flight();
  const int socket = socket_.native_handle();
  const std::size_t counted = descriptors.size();
  if (counted != 0 && welcome_descriptors_ != 0 && is_read(socket)) welcome_descriptors_ = 0;
  if (counted != 0 && !unread_.has_room(peer_.account(), socket, counted)) return too_many_in_flight();
  auto sent = send_packet(socket, packet, descriptors);
  if (sent) unread_.sent(peer_.account(), socket, counted, weak_from_this());
  return sent;
}

Result<void> Lane::try_to_send(std::string_view packet, const core::SentExtents& extents) {
  std::vector<int> descriptors;
  std::vector<UniqueFd> opened;  // until they are sent
  for (const ExtentId extent : extents.ids) {
    SentDescriptor sent = handler_.descriptor(extent, extents.is_read_only, process_);
    if (!sent.is_held) return try_to_send(withdrawn(packet), std::span<const int>());
    if (sent.number < 0) return Error{Code::kResourceExhausted, "the broker has no descriptor left to open"};
    descriptors.push_back(sent.number);
    opened.push_back(std::move(sent.opened));
  }
  return try_to_send(packet, descriptors);
}

// Of descriptors that are unread, this client's may be the smallest part: it is not cut for them.
void Lane::await_room(const Error& obstacle) {
  if (!is_full_socket(obstacle)) {
    patience_.cancel();
    return unread_.await_room(peer_.account(), weak_from_this());
  }
  close_after_patience();
  socket_.async_wait(Descriptor::wait_write,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (!error) self->handler_.in_turn(self, [self] { self->try_again(); });
                     });
}

void Lane::close_after_patience() {
  patience_.expires_after(kReadingPatience);
  patience_.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
    if (const auto lane = self.lock(); lane && !error) lane->close_in_turn("it does not read its lane");
  });
}

void Lane::try_again() {
  if (!ended_) flush();
}

void Lane::flush() {
  while (!outbox_.empty()) {
    if (auto sent = try_to_send(outbox_.front().bytes, outbox_.front().extents); !sent) {
      if (is_closed_to_us(sent.error())) return stop_sending();
      if (passes(sent.error())) return await_room(sent.error());
      return close(sent.error().message);
    }
    to_send_ -= outbox_.front().bytes.size();
    outbox_.pop_front();
    if (to_send_ <= kMuchToSend && std::exchange(is_paused_, false)) await_message();
  }
  patience_.cancel();
}

// A client that leaves reads no answer any more. Its last words may still lie in the socket: a Goodbye, or
// that it has let go of memory. They are read until its end of the connection is closed.
void Lane::stop_sending() {
  is_unheard_ = true;
  outbox_.clear();
  to_send_ = 0;
  close_after_patience();
  if (std::exchange(is_paused_, false)) await_message();
}

// exec() closes the connection after it has taken the mappings away. Any other process that closes its end
// says that it has let go, as with a Goodbye: the driver proves it or not. The end of a process that is about
// to end comes by process_exited().
bool Lane::lives_on() const {
  if (!process_.is_watching()) return false;
  return peer_.pid == 0 || !is_ending(stat_of(peer_.pid));
}

void Lane::close(const std::string& why) {
  if (ended_) return;
  handler_.warn("connection of " + who() + " closed: " + why);
  end();
}

void Lane::close_in_turn(const std::string& why) {
  handler_.in_turn(shared_from_this(), [self = shared_from_this(), why] { self->close(why); });
}

void Lane::end() {
  if (ended_) return;
  leave_to_next();
  handler_.closed(shared_from_this(), released_);
}

void Lane::leave_to_next() {
  ended_ = true;
  patience_.cancel();
  outbox_.clear();
  close_socket();
}

void Lane::close_socket() {
  if (socket_.is_open()) unread_.close(peer_.account(), UniqueFd(socket_.release()), welcome_descriptors_);
}

Result<void> Lane::signal(core::Signal signal) {
  if (peer_.can_be_ended) return process_.signal(signal);
  return Error{Code::kFailedPrecondition, "the kernel does not let the broker signal this process"};
}

void Lane::forget() {
  process_.stop();
  end();
}

}  // namespace gpumem::host
