#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "client/lane.h"
#include "gpumem/result.h"

namespace gpumem::cli {

/// A connection that tells the broker who asks: the calls that not everybody may make carry its token, for as
/// long as it lives. It is no session, and nothing is charged for it.
class Control {
 public:
  /// Errors  as client::Lane::connect and greet_control.   Blocks  for 10 s at most.
  static Result<Control> connect(const std::filesystem::path& runtime_folder);

  const std::string& token() const { return token_; }

 private:
  Control(std::unique_ptr<client::Lane> lane, std::string token)
      : lane_(std::move(lane)), token_(std::move(token)) {}

  std::unique_ptr<client::Lane> lane_;
  std::string token_;
};

}  // namespace gpumem::cli
