#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/system/unique_fd.h"
#include "daemon/core/words/types.h"
#include "daemon/host/system/process.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// The peer of a connected Unix socket, as the kernel reports it, with a handle of the process, so that a
/// reused pid is never mistaken for it.
struct PeerProcess {
  core::Peer peer;
  UniqueFd pidfd;  ///< readable once the process has ended; invalid: the kernel has no handle for it
};

/// The peer's pid is 0 if it lives in a PID namespace that this process does not see; peer.can_be_ended says
/// whether it can be signalled. Without a pid, peer.started is the inode of its pidfd, which no other process
/// has before the machine starts anew; 0 before Linux 6.9.
/// Errors  kUnavailable, or what the kernel says: the process has ended; kResourceExhausted: no descriptor
/// left.
Result<PeerProcess> identify_peer(int socket, const KernelFeatures& kernel = {});

/// Whether a connection comes from a process in a pod that does not share the machine's PIDs. Also true of a
/// process that has ended, because the kernel does not tell where it was. Never of a port: the kernel does
/// not tell who is at its other end.
bool may_be_of_pod(int connection, const KernelFeatures& kernel);

/// `pid 7 (uid 1000, python)`, with its pod, if it is in one, and whether it cannot be ended.
std::string in_words(const core::Peer& peer);

/// The administrators: root, and the members of one group, if one is configured. Limits leave room for them.
/// And the reader, if there is one: a user that may read all accounts and follow all events, and no more.
/// A process of a pod is no administrator, whatever its user, unless the pod shares the machine's PIDs
/// (hostPID).
/// Threads  any.
class Administrators {
 public:
  explicit Administrators(std::optional<std::uint32_t> gid = {}) { set_group(gid); }

  void set_group(std::optional<std::uint32_t> gid) { gid_ = gid ? std::int64_t{*gid} : kNone; }
  std::optional<std::uint32_t> group() const {
    const std::int64_t gid = gid_;
    return gid == kNone ? std::nullopt : std::optional(static_cast<std::uint32_t>(gid));
  }
  /// False: it was so already.
  bool set_reader(std::optional<std::uint32_t> uid) {
    const std::int64_t reader = uid ? std::int64_t{*uid} : kNone;
    return reader_.exchange(reader) != reader;
  }
  bool is_reader(const core::Peer& peer) const { return !peer.contained && reader_ == peer.uid; }
  bool include(const core::Peer& peer) const {
    if (peer.contained) return false;
    const std::int64_t gid = gid_;
    return peer.uid == 0 ||
           std::any_of(peer.gids.begin(), peer.gids.end(), [&](std::uint32_t one) { return one == gid; });
  }

 private:
  static constexpr std::int64_t kNone = -1;

  std::atomic<std::int64_t> gid_ = kNone;
  std::atomic<std::int64_t> reader_ = kNone;
};

}  // namespace gpumem::host
