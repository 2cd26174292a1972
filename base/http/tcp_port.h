#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "base/system/unique_fd.h"
#include "gpumem/result.h"

namespace gpumem::http {

/// An address of this machine, and a port.
struct TcpAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
  bool is_loopback = false;  ///< only this machine reaches it
};

/// Reads 127.0.0.1:9400, or [::1]:9400; port 0: one that the kernel chooses.
/// Errors  kInvalidArgument: not of this form.
Result<TcpAddress> parse_tcp_address(const std::string& text);

/// A socket that listens and is non-blocking, and where that is, as text.
struct TcpPort {
  UniqueFd fd;
  std::string where;
};
/// Errors  as parse_tcp_address(); those of the system, which name the address: the port may be taken.
Result<TcpPort> listen_on_tcp(const std::string& text);

}  // namespace gpumem::http
