#pragma once
#include <filesystem>
#include <string>

namespace gpumem::cli {

struct EventsOptions {
  std::filesystem::path runtime_folder;
  std::string since;   ///< as since_text() takes it; empty: from now on, or, not following, all that is kept
  std::string tenant;  ///< only of this one; empty: all that this user may see
  bool follow = true;
  bool json = false;
};

/// `gpumem events`: a line for each event, until interrupted. Answers the command's exit status.
int run_events(const EventsOptions& options);

}  // namespace gpumem::cli
