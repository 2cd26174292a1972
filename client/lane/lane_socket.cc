#include "client/lane/lane_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/crash_point.h"
#include "base/system/unix_socket.h"
#include "client/process/runtime_folder.h"

namespace gpumem::client {
namespace {

Result<OwnFd> open_socket() {
  const NoFork no_fork;
  UniqueFd socket = above_standard_streams(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  if (!socket.valid()) return errno_error(errno, "cannot make a socket");
  return OwnFd(no_fork, std::move(socket));
}

/// A full accept queue of the broker blocks connect(), so the socket becomes non-blocking only afterwards.
/// Returns an errno value, 0 for success.
int connect_to(int socket, const std::filesystem::path& path, std::chrono::milliseconds timeout) {
  const auto known = std::max(timeout, std::chrono::milliseconds(1));  // 0 would be no limit
  const timeval limit{known.count() / 1000, known.count() % 1000 * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  int result = 0;
  do {
    result = connect_unix(socket, path);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return errno;
  return ::fcntl(socket, F_SETFL, O_NONBLOCK) == 0 ? 0 : errno;
}

struct alignas(cmsghdr) ControlBuffer {
  char bytes[CMSG_SPACE(lane::kMostDescriptors * sizeof(int))];
};

void take_descriptors(const NoFork& no_fork, msghdr& message, std::vector<OwnFd>& taken) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    taken.reserve(taken.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      taken.emplace_back(no_fork, above_standard_streams(UniqueFd(fd)));
    }
  }
}

}  // namespace

Result<OwnFd> connect_lane(const std::filesystem::path& path, std::chrono::milliseconds timeout) {
  if (auto trusted = check_owner(path); !trusted) return trusted.error();
  auto opened = open_socket();
  if (!opened) return opened;
  if (const int failed = connect_to(opened->get(), path, timeout); failed != 0)
    return connect_error(path, failed);
  return opened;
}

// Between the check and the use only one thing can go wrong: one thread of the program closes a descriptor
// that the program did not open, while another thread opens a file.
LaneSocket::Sent LaneSocket::send(std::string_view bytes) const {
  if (!is_intact()) return Sent::kGone;
  if (fails_at(CrashPoint::kClientSend)) return Sent::kFull;
  ssize_t sent = 0;
  do {
    sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return Sent::kYes;
  const bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
  return full ? Sent::kFull : Sent::kGone;
}

LaneSocket::Received LaneSocket::receive(LanePacket& packet) const {
  if (!is_intact()) return Received::kEnd;
  iovec payload{packet.bytes.data(), packet.bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const NoFork no_fork;
  ssize_t received = 0;
  do {  // a broker that ended with requests unread is reported once by ECONNRESET, before what it had sent
    received = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && (errno == EINTR || errno == ECONNRESET));
  if (received < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Received::kNothing : Received::kEnd;
  take_descriptors(no_fork, message, packet.descriptors);  // an empty packet, too, may bring some
  if (received == 0) return Received::kEnd;
  packet.size = (message.msg_flags & MSG_TRUNC) != 0 ? 0 : static_cast<std::size_t>(received);
  packet.lost_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  return Received::kPacket;
}

bool LaneSocket::replace(LaneSocket other) const {
  return replace_descriptor(socket_, std::move(other.socket_));
}

void LaneSocket::stop_receiving() const {
  if (is_intact()) ::shutdown(socket_.get(), SHUT_RD);
}

void LaneSocket::hang_up() const {
  if (is_intact()) ::shutdown(socket_.get(), SHUT_RDWR);
}

bool LaneSocket::wait(short events, Clock::time_point deadline) const {
  using std::chrono::milliseconds;
  pollfd polled{socket_.get(), events, 0};
  for (;;) {
    if (!is_intact()) return true;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto limit = std::clamp(left, milliseconds(0), milliseconds(60'000));
    const int ready = ::poll(&polled, 1, static_cast<int>(limit.count()));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // what is wrong is seen by the next call
    if (Clock::now() >= deadline) return false;
  }
}

}  // namespace gpumem::client
