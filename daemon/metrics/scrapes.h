#pragma once
#include <functional>
#include <vector>

#include "base/http/http_server.h"
#include "daemon/metrics/exposition.h"

namespace gpumem::metrics {

struct Scrapes {
  std::vector<UniqueFd> sockets;  ///< listening and non-blocking
  /// Asks for the text. Its answer may come on any thread, and not at all once the server has stopped.
  std::function<void(Exposition::Then)> text;
  /// Whether a descriptor, just opened, is one that is kept for others.
  std::function<bool(int)> is_reserved = [](int) { return false; };
  /// Whether a connection is of a process in a pod. Such a one is refused.
  std::function<bool(int)> is_of_pod = [](int) { return false; };
};

/// A server that answers GET and HEAD of /metrics with the text, and counts the connections that it refuses
/// or closes to make room (core::refusals()).
http::HttpServer::Options serving(Scrapes scrapes);

}  // namespace gpumem::metrics
