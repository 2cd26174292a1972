#pragma once
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

}  // namespace gpumem::kubernetes
