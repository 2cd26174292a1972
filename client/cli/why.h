#pragma once
#include <optional>
#include <string>

#include "client/cli/listings.h"

namespace gpumem::cli {

struct WhyOptions {
  std::filesystem::path runtime_folder;
  std::string subject;  ///< a session's number, or a tenant's name
  Style style;
  std::optional<double> watch_seconds;  ///< show again and again, this far apart
};

/// `gpumem why`: how a tenant stands and what its requests wait for. Answers the command's exit status.
int run_why(const WhyOptions& options);

}  // namespace gpumem::cli
