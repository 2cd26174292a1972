#pragma once
#include <filesystem>
#include <string>

#include "client/fork_guard.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// A connection that tells the broker who asks: the calls that not everybody may make carry its token, for as
/// long as it lives. It is no session, and nothing is charged for it.
class Control {
 public:
  /// Errors  as client::connect_error; kUnavailable (the broker closed, or does not answer),
  ///         kFailedPrecondition (other version), kInternal (it breaks the protocol), and what it refuses
  ///         with.
  /// Blocks  for 10 s at most.
  static Result<Control> connect(const std::filesystem::path& runtime_folder);

  const std::string& token() const { return token_; }

 private:
  Control(client::OwnFd socket, std::string token) : socket_(std::move(socket)), token_(std::move(token)) {}

  client::OwnFd socket_;
  std::string token_;
};

}  // namespace gpumem::cli
