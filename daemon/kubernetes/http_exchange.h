#pragma once
#include <chrono>
#include <filesystem>
#include <string>

#include "daemon/kubernetes/endpoint.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

struct HttpRequest {
  std::string method;  ///< GET, POST, PUT, DELETE
  std::string path;    ///< with its query
  std::string body;    ///< JSON; empty: none
  std::string token;   ///< of the Authorization header; empty: none
};

struct HttpAnswer {
  unsigned status = 0;
  std::string body;
};

/// Sends `request` to `server` on a connection of its own and reads the answer, within `patience`. By TLS the
/// server has to show a certificate for its host, of an authority in `ca_file` (empty: the system's).
/// Errors  kUnavailable: no connection, or broken off. kDeadlineExceeded. kPermissionDenied: not the server
///         that it should be. kFailedPrecondition: `ca_file` cannot be used. All name the server.
/// Blocks.  Threads  any.
Result<HttpAnswer> exchange(const Endpoint& server, const std::filesystem::path& ca_file,
                            const HttpRequest& request, std::chrono::milliseconds patience);

}  // namespace gpumem::kubernetes
