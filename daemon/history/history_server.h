#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/http/http_server.h"
#include "daemon/history/report.h"

namespace gpumem::history {

/// The process at the other end of a connection, as the kernel says.
struct Peer {
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;  ///< the primary group first
};

/// An answer of HTTP.
struct Answer {
  unsigned status = 200;
  Json body;
};

inline constexpr std::size_t kMostConnections = 64;
inline constexpr std::size_t kMostOfUser = 4;

/// A server that answers one request on each connection to `socket`, a listening Unix socket. Connections are
/// bounded, for each user too; one too many is closed. Each may take some seconds only.
http::HttpServer::Options serving(
    UniqueFd socket,
    std::function<Answer(const Peer& peer, const std::string& method, const std::string& target)> answer);

}  // namespace gpumem::history
