#include "client/cli/run/program/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>

#include "base/text/printable.h"
#include "base/text/time_format.h"

namespace gpumem::cli {
namespace {

class UsageWithCommand : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = CLI::Formatter::make_usage(app, std::move(name));
    return text.insert(text.find_last_not_of('\n') + 1, " [[--] COMMAND...]");
  }
};

}  // namespace

// CLI11 gives the words behind a `--` back to the command above, so it is not shown them.
SplitLine split_line(int argc, char** argv) {
  SplitLine line{{argv, argv + argc}, std::nullopt};
  const auto dashes = std::find(line.words.begin(), line.words.end(), std::string_view("--"));
  const auto runs = [](std::string_view word) { return word == "run" || word == "reserve"; };
  if (dashes == line.words.end() || std::none_of(line.words.begin(), dashes, runs)) return line;
  line.behind_dashes.emplace(dashes + 1, line.words.end());
  line.words.erase(dashes, line.words.end());
  return line;
}

void take_command(CLI::App& command, std::string& runtime_dir) {
  command.prefix_command();
  command.formatter(std::make_shared<UsageWithCommand>());
  command.fallthrough(false);  // options behind the command's first word are its own
  command.add_option("--runtime-dir", runtime_dir, "Folder of the broker's sockets [/run/gpumemd]")
      ->type_name("DIR");
}

std::vector<std::string> command_words(const CLI::App& command, const SplitLine& line) {
  std::vector<std::string> words = command.remaining();
  if (!words.empty() && words.front().starts_with('-'))
    throw CLI::ExtrasError(command.get_name(), {words.front()});
  if (!line.behind_dashes) return words;
  if (!words.empty()) words.emplace_back("--");  // one of the command's own
  words.insert(words.end(), line.behind_dashes->begin(), line.behind_dashes->end());
  return words;
}

void add_name(CLI::App& command, std::string& name) {
  command.add_option("--name", name, "What `gpumem ps` and `gpumem job list` show for it")
      ->check([](const std::string& text) {
        const auto right = check_label(text);
        return right ? std::string() : right.error().message;
      })
      ->type_name("NAME");
}

bool runs_a_command(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return !parsed.empty() && parsed.front()->get_prefix_command();
}

}  // namespace gpumem::cli
