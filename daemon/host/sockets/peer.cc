#include "daemon/host/sockets/peer.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/system/peer_credentials.h"
#include "base/system/subordinate_ids.h"
#include "base/text/printable.h"
#include "daemon/host/system/process.h"

namespace gpumem::host {
namespace {

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; the headers of Debian 12 are older
#endif

// A handle of the very process that connected, whatever its pid is here. Before Linux 6.5 it is opened by
// pid. Then a successor with the same pid is taken for the process if that ended since it connected, and a
// process without a pid here has no handle.
Result<UniqueFd> open_pidfd(int socket, pid_t pid, const KernelFeatures& kernel) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (kernel.peer_pidfd) {
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return UniqueFd(fd);
    if (errno != ENOPROTOOPT) return errno_error(errno, "cannot watch the peer");  // the peer has ended
  }
  if (pid == 0) return UniqueFd();
  fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno_error(errno, "cannot watch the peer");
  return UniqueFd(fd);
}

// The number of the process behind the pidfd, which no other process of any PID namespace has before the
// machine starts anew: the pidfd's inode. 0: the kernel has none. Before Linux 6.9 pidfds had no file system
// of their own, and one inode for all of them.
std::uint64_t number_of(const UniqueFd& pidfd) {
  constexpr auto kPidfs = 0x50494446;  // PID_FS_MAGIC; the headers of Debian 12 are older
  struct statfs system {};
  struct stat file {};
  if (::fstatfs(pidfd.get(), &system) != 0 || system.f_type != kPidfs) return 0;
  return ::fstat(pidfd.get(), &file) == 0 ? file.st_ino : 0;
}

// The kernel lets nobody signal a process of a PID namespace that is not below the sender's own.
bool can_signal(const UniqueFd& pidfd) {
  return pidfd.valid() && ::syscall(SYS_pidfd_send_signal, pidfd.get(), 0, nullptr, 0) == 0;
}

}  // namespace

Result<PeerProcess> identify_peer(int socket, const KernelFeatures& kernel) {
  const auto credentials = peer_credentials(socket);
  if (!credentials) return errno_error(errno, "cannot tell who connected");
  PeerProcess found;
  found.peer.pid = credentials->pid;
  found.peer.uid = credentials->uid;
  found.peer.gids = peer_groups(socket, credentials->gid);
  auto pidfd = open_pidfd(socket, credentials->pid, kernel);
  if (!pidfd) return pidfd.error();
  found.pidfd = std::move(*pidfd);
  PodReader::Found in = kernel.pods.find(credentials->pid);
  if (credentials->pid == 0) {
    found.peer.started = number_of(found.pidfd);
  } else if (auto stat = in.stat ? std::move(in.stat) : stat_of(credentials->pid)) {
    found.peer.command = printable_ascii(std::move(stat->command));
    found.peer.started = stat->started.value_or(0);
  }
  found.peer.pod = std::move(in.pod);
  found.peer.pod_unknown = in.unknown;
  found.peer.contained = in.contained;
  if (kernel.subordinates != nullptr) found.peer.owner = kernel.subordinates->owner_of(found.peer.uid);
  found.peer.can_be_ended = can_signal(found.pidfd);
  if (found.pidfd.valid() && has_ended(found.pidfd.get()))
    return Error{Code::kUnavailable, "the peer has ended"};
  return found;
}

bool may_be_of_pod(int connection, const KernelFeatures& kernel) {
  int domain = AF_UNIX;
  socklen_t size = sizeof domain;
  ::getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  if (domain != AF_UNIX) return false;
  const auto found = identify_peer(connection, kernel);
  return !found || found->peer.contained;
}

std::string in_words(const core::Peer& peer) {
  const std::string uid = "uid " + std::to_string(peer.uid);
  const std::string in_pod = peer.pod.empty() ? "" : ", pod " + peer.pod;
  const std::string words =
      peer.pid == 0 ? "a process of another PID namespace (" + uid + ")"
                    : "pid " + std::to_string(peer.pid) + " (" + uid + ", " + peer.command + in_pod + ")";
  return peer.can_be_ended ? words : words + ", which cannot be ended";
}

}  // namespace gpumem::host
