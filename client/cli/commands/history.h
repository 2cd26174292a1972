#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/commands/usage.h"
#include "client/cli/views/text.h"

namespace CLI {
class App;
}

namespace gpumem::cli {

/// What `gpumem account` asks the history. Nothing: the broker is asked.
struct HistoryChoice {
  std::string since, until;     ///< as instant_of() takes them
  std::vector<std::string> by;  ///< tenant, user, device, day
  std::optional<std::uint32_t> forget;

  bool is_made() const { return !since.empty() || !until.empty() || !by.empty() || forget; }
};

struct HistoryOptions {
  std::filesystem::path runtime_folder;  ///< of the broker, which knows the devices' names
  HistoryChoice choice;
  TableFlags flags{};
  bool csv = false;
};

/// The instant that `text` names, before `now`: RFC 3339, a date, today, yesterday, the last day of a name
/// (monday), or how long ago (7d). Days begin at midnight UTC.   Errors  kInvalidArgument: something else.
Result<WallTime> instant_of(const std::string& text, WallTime now);

void add_history_options(CLI::App& command, HistoryChoice& choice);

/// Prints the answer, or does what the choice says. Answers the command's exit status.
int run_history(const HistoryOptions& options);

}  // namespace gpumem::cli
