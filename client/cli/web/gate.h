#pragma once
#include <optional>
#include <string>

#include "base/http/http_server.h"

namespace gpumem::cli::web {

/// Decides which requests are answered. It lets nothing pass that another site could have a browser send.
class Gate {
 public:
  enum class Asked { kPage, kData };

  /// `token`  that requests for data must have; empty: none, because only this user reaches the socket.
  explicit Gate(std::string token) : token_(std::move(token)) {}

  /// Why `request` is refused; nothing: it is not. The page itself has no data and needs no token.
  std::optional<http::Answer> refuse(const http::Request& request, Asked asked) const;

  static constexpr const char* kTokenField = "X-Gpumem-Token";

 private:
  std::optional<http::Answer> refuse_data(const http::Request& request) const;

  const std::string token_;
};

/// Text of 256 random bits.
std::string random_token();

}  // namespace gpumem::cli::web
