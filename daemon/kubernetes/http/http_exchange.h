#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// Where an HTTP server is.
struct Endpoint {
  bool tls = true;
  std::string host;  ///< a name or an address, without brackets
  std::string port;
  std::string prefix;  ///< of every path; empty, or `/...` without a slash at its end

  /// As it stands in a request's Host.
  std::string authority() const;
};

/// Reads `https://HOST[:PORT][/PREFIX]`. `http://` is for a server on this machine's loopback alone: the
/// token must not be heard by others. Errors  kInvalidArgument: something else.
Result<Endpoint> parse_endpoint(std::string_view url);

/// Whether `host` is an address, not a name.
bool is_address(const std::string& host);

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
