#include "base/packet.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace gpumem {
namespace {

// The kernel refuses more than this (SCM_MAX_FD), so it bounds both directions.
constexpr std::size_t kKernelDescriptors = 253;

struct alignas(cmsghdr) ControlBuffer {
  char bytes[CMSG_SPACE(kKernelDescriptors * sizeof(int))];
};

std::vector<UniqueFd> take_descriptors(msghdr& message) {
  std::vector<UniqueFd> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      taken.emplace_back(fd);
    }
  }
  return taken;
}

}  // namespace

Result<void> send_packet(int socket, std::string_view bytes, std::span<const int> descriptors) {
  if (descriptors.size() > kKernelDescriptors)
    return Error{Code::kInvalidArgument, "more than 253 descriptors in one message"};
  iovec payload{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(part), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {};
  if (errno == EMSGSIZE) return Error{Code::kInvalidArgument, "message too long for the socket"};
  if (errno == ETOOMANYREFS) {
    return Error{Code::kResourceExhausted, "too many descriptors in flight; raise RLIMIT_NOFILE"};
  }
  return errno_error(errno, "cannot send");
}

Result<Packet> receive_packet(int socket, std::size_t most_bytes, std::size_t most_descriptors) {
  Packet packet;
  packet.bytes.resize(most_bytes);
  iovec payload{packet.bytes.data(), packet.bytes.size()};
  ControlBuffer control;
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t received = 0;
  do {
    received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return errno_error(errno, "cannot receive");
  packet.descriptors = take_descriptors(message);
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return Error{Code::kInvalidArgument, "message longer than " + std::to_string(most_bytes) + " bytes"};
  if ((message.msg_flags & MSG_CTRUNC) != 0 || packet.descriptors.size() > most_descriptors)
    return Error{Code::kInvalidArgument, "message with more than " + std::to_string(most_descriptors) +
                                             " descriptors, or no room for them (RLIMIT_NOFILE)"};
  packet.bytes.resize(static_cast<std::size_t>(received));
  return packet;
}

// Empty sockets are so usual that no words are made for them.
Result<std::string_view> receive_bytes(int socket, std::span<char> buffer) {
  ssize_t received = 0;
  do {
    received = ::recv(socket, buffer.data(), buffer.size(), MSG_TRUNC);
  } while (received < 0 && errno == EINTR);
  if (received < 0 && errno == EAGAIN) return Error{Code::kDeadlineExceeded, {}};
  if (received < 0) return errno_error(errno, "cannot receive");
  const auto bytes = static_cast<std::size_t>(received);
  if (bytes <= buffer.size()) return std::string_view(buffer.data(), bytes);
  return Error{Code::kInvalidArgument, "message longer than " + std::to_string(buffer.size()) + " bytes"};
}

}  // namespace gpumem
