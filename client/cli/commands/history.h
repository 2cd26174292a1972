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
  std::vector<std::string> by;  ///< tenant, user, device, day, namespace, pod; or job or session alone
  std::optional<std::uint32_t> forget;

  bool is_made() const { return !since.empty() || !until.empty() || !by.empty() || forget; }
};

struct HistoryOptions {
  std::filesystem::path runtime_folder;  ///< of the broker, which knows the devices' names
  HistoryChoice choice;
  TableFlags flags{};
  bool csv = false;
};

/// Throws CLI::ValidationError if `since` is not before `until`, or lies in the future.
void check_span(const std::string& since, const std::string& until);
/// As check_span(), and for columns that do not go together.
void check_choice(const HistoryChoice& choice);

/// Adds an option whose text is an instant, as instant_of() takes it.
void add_instant(CLI::App& command, const char* option, std::string& text, const char* about);

void add_history_options(CLI::App& command, HistoryChoice& choice);

/// Prints the answer, or does what the choice says. Answers the command's exit status.
int run_history(const HistoryOptions& options);

}  // namespace gpumem::cli
