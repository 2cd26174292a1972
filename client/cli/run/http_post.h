#pragma once
#include <chrono>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

/// An address of the form `http://HOST[:PORT][/PATH]`.
struct HttpUrl {
  std::string host;
  std::string port;
  std::string path;
};

/// Errors  kInvalidArgument: of another form; https is not spoken.
Result<HttpUrl> parse_url(const std::string& url);

/// Posts `json` to `url`. Good is an answer of 200 to 299, whose head has come within `patience`, all in all.
/// Answers of 100 to 199 that precede it are passed over, up to 16. Its body is not read.
/// Errors  kUnavailable: no such answer in time, another one, or one whose head is longer than 16 KiB.
/// Blocks  for `patience` at most.
Result<void> post_json(const HttpUrl& url, const std::string& json, std::chrono::milliseconds patience);

}  // namespace gpumem::cli
