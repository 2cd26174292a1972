#include "daemon/host/foreign_descriptors.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace gpumem::host {
namespace {

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // Linux 6.16; the headers of Debian 12 are older
#endif

// More than the kernel queues on one socket.
constexpr int kMostQueued = 1 << 16;

bool is_stream(int socket) {
  int type = 0;
  socklen_t length = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

std::size_t length_of(ssize_t bytes) { return static_cast<std::size_t>(bytes); }

struct Queued {
  ssize_t bytes = 0;
  bool credentials = false;  ///< the message has credentials
  bool descriptors = false;
};

// With SO_PASSCRED each message has credentials, so an empty message differs from the end; the end of a
// stream has them, too. The buffer has room for credentials alone: for descriptors the kernel only sets
// MSG_CTRUNC.
Queued look_at_queue(int socket, std::span<std::byte> into) {
  iovec payload{into.data(), into.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control;
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0) return {count, false, false};
  return {count, message.msg_controllen != 0, (message.msg_flags & MSG_CTRUNC) != 0};
}

}  // namespace

bool refuse_descriptors(int listener) {
  const int off = 0;
  return ::setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off) == 0;
}

// Without a buffer for control messages the kernel only says that there are some.
Readable look_at(int socket, std::span<std::byte> into) {
  iovec payload{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  return {count, count >= 0 && (message.msg_flags & MSG_CTRUNC) != 0};
}

bool empty_queue(int socket) {
  ::shutdown(socket, SHUT_RDWR);  // from now on nothing is added to it
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  const bool stream = is_stream(socket);
  std::array<std::byte, 16384> piece;
  int resets = 0;
  for (int i = 0; i < kMostQueued; ++i) {
    const Queued next = look_at_queue(socket, piece);
    if (next.descriptors) return false;
    const bool message = next.bytes > 0 || (next.bytes == 0 && next.credentials && !stream);
    // A reset is reported once, before what the peer had sent.
    const bool reset = next.bytes < 0 && errno == ECONNRESET && ++resets < 2;
    if (!message && !reset) return true;
    if (message) static_cast<void>(::recv(socket, piece.data(), length_of(next.bytes), MSG_DONTWAIT));
  }
  return false;
}

}  // namespace gpumem::host
