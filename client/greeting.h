#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "client/fork_guard.h"
#include "client/lane_socket.h"
#include "proto/lane/frames.h"

namespace gpumem::client {

/// What the broker says of the session and of itself.
struct Welcome {
  std::uint64_t session = 0;
  std::string tenant;
  std::string driver_folder;         ///< where the broker found its driver; empty: the system's search path
  std::vector<std::string> devices;  ///< UUIDs; the index is the device's place in the shared pages
};

/// The broker's answer to a Hello or a Resume.
struct Greeting {
  Welcome welcome;
  OwnFd broker_page;
  OwnFd client_page;
  OwnFd doorbell;
};

/// The greeting of `body`, which came in `packet`, whose descriptors it takes.
/// Errors  kFailedPrecondition: of another version; kInternal: it breaks the protocol;
///         kResourceExhausted: this process has no room for the descriptors (RLIMIT_NOFILE).
Result<Greeting> greeting_of(const lane::Welcome& body, LanePacket& packet);

}  // namespace gpumem::client
