#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// An address that only this machine reaches, and a port.
struct Loopback {
  sockaddr_storage address{};
  socklen_t size = 0;
};

/// Reads 127.0.0.1:9400, or [::1]:9400; port 0: one that the kernel chooses.
/// Errors  kInvalidArgument: not of this form, or an address that others reach.
Result<Loopback> parse_loopback(const std::string& text);

/// A socket that listens there and is non-blocking, and where that is, as text.
struct LoopbackSocket {
  UniqueFd fd;
  std::string where;
};
/// Errors  as parse_loopback(); those of the system, which name the address: the port may be taken.
Result<LoopbackSocket> listen_on_loopback(const std::string& text);

}  // namespace gpumem::host
