#include "client/cli/unknown_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "client/cli/nearest_name.h"

namespace gpumem::cli {
namespace {

// `regions rm`, if `word` is `rm`; empty: no command has such a one.
std::string command_below(const CLI::App& context, const std::string& word) {
  const auto all = [](const CLI::App*) { return true; };
  for (const CLI::App* one : context.get_subcommands(all))
    for (const CLI::App* below : one->get_subcommands(all))
      if (below->get_name() == word) return one->get_name() + " " + word;
  return {};
}

std::string no_such_command(const std::string& path, const CLI::App& context, const std::string& word,
                            const std::vector<std::string>& names) {
  std::string near = command_below(context, word);
  if (near.empty()) near = nearest_name(word, names);
  return path + ": there is no command '" + word + "'" +
         (near.empty() ? "." : "; did you mean '" + near + "'?");
}

}  // namespace

std::string unknown_command(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* context = &app;
  std::string path = app.get_name();
  for (auto parsed = context->get_subcommands(); !parsed.empty(); parsed = context->get_subcommands()) {
    context = parsed.front();
    path += " " + context->get_name();
  }
  std::vector<std::string> names;
  for (const CLI::App* one : context->get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  if (names.empty()) return {};
  const auto words = app.remaining(true);
  const auto word =
      std::find_if(words.begin(), words.end(), [](const auto& one) { return !one.starts_with('-'); });
  std::string text;
  if (word != words.end()) {
    text = no_such_command(path, *context, *word, names);
  } else if (words.empty() && error.get_name() == "RequiredError") {
    text = path + ": a command is needed";
  } else {
    return {};
  }
  text += "\nCommands:";
  for (const std::string& name : names) text += " " + name;
  return text + "\nRun with --help for more information.\n";
}

}  // namespace gpumem::cli
