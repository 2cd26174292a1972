#pragma once
#include "base/unique_fd.h"
#include "daemon/core/types.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// Who is at the other end of a connected Unix socket, as the kernel says, and a handle of the process
/// itself, so that a reused pid is never mistaken for it.
struct PeerProcess {
  core::Peer peer;
  UniqueFd pidfd;  ///< readable once the process has ended; invalid where the kernel does not tell (pid 0)
};

/// Errors  kUnavailable, or what the kernel says: the process has ended; kResourceExhausted: no descriptor
/// left.
Result<PeerProcess> identify_peer(int socket);

}  // namespace gpumem::host
