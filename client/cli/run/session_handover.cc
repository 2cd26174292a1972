#include "client/cli/run/session_handover.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "client/runtime_folder.h"
#include "proto/lane.h"

namespace gpumem::cli {
namespace {

constexpr char kBegin = 'b';
constexpr timeval kConnectTime{10, 0};

// One descriptor, or none and why.
bool send_fd(int channel, int fd, int number) {
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (number == 0) {
    message.msg_control = room.data();
    message.msg_controllen = room.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(channel, &message, MSG_NOSIGNAL) == sizeof number && number == 0;
}

}  // namespace

Result<SessionHandover> SessionHandover::make(const std::filesystem::path& runtime_folder,
                                              const std::string& program) {
  SessionHandover handover;
  handover.socket_ = runtime_folder / kApiSocketName;
  const std::string& path = handover.socket_.native();
  if (path.size() >= sizeof handover.address_.sun_path)
    return client::connect_error(handover.socket_, ENAMETOOLONG);
  handover.address_.sun_family = AF_UNIX;
  std::memcpy(handover.address_.sun_path, path.c_str(), path.size());
  const std::string name = std::filesystem::path(program).filename().string();
  std::copy_n(name.begin(), std::min(name.size(), handover.name_.size() - 1), handover.name_.begin());
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return errno_error(errno, "cannot make a socket");
  handover.own_.reset(ends[0]);
  handover.theirs_.reset(ends[1]);
  return handover;
}

bool SessionHandover::in_command() const {
  ::close(own_.get());  // so that the other process's end is seen
  ::prctl(PR_SET_NAME, name_.data());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kConnectTime, sizeof kConnectTime);  // of a broker that hangs
  const bool is_there =
      fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) == 0;
  if (!send_fd(theirs_.get(), fd, is_there ? 0 : errno)) return false;
  ::close(fd);
  char word = 0;
  ssize_t count = 0;
  while ((count = ::read(theirs_.get(), &word, 1)) < 0 && errno == EINTR) {
  }
  return count == 1 && word == kBegin;
}

Result<UniqueFd> SessionHandover::receive() {
  theirs_.reset();
  int number = 0;
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  ssize_t count = 0;
  while ((count = ::recvmsg(own_.get(), &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (count != sizeof number) return Error{Code::kInternal, "the new process has ended"};
  if (number != 0) return client::connect_error(socket_, number);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    return Error{Code::kInternal, "the new process has handed over no socket"};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

void SessionHandover::release(bool begins) {
  if (begins) static_cast<void>(::send(own_.get(), &kBegin, 1, MSG_NOSIGNAL) == 1);
  own_.reset();
}

}  // namespace gpumem::cli
