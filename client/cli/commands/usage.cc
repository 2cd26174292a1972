#include "client/cli/commands/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

#include "base/time_format.h"

namespace gpumem::cli {
namespace {

// Levenshtein's: letters to be put in, left out or exchanged.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, exchanged});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& names, std::size_t most) {
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  const bool is_near =
      best != names.end() &&
      edit_distance(word, *best) <= (most != 0 ? most : std::max<std::size_t>(2, word.size() / 3));
  return is_near ? *best : std::string();
}

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

void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON: stable keys, sizes in bytes");
}

void add_time(CLI::App& command, const char* option, std::function<void(std::chrono::milliseconds)> store,
              const char* about) {
  const auto read = [option, store = std::move(store)](const std::string& text) {
    const auto time = parse_duration(text);
    if (!time) throw CLI::ValidationError(option, time.error().message);
    store(*time);
  };
  command.add_option_function<std::string>(option, read, about)->type_name("TIME");
}

CLI::Option* add_number(CLI::App& command, const char* option, std::function<void(std::uint64_t)> store,
                        const char* about, NumberRange range) {
  const auto read = [option, store = std::move(store), range](const std::string& text) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, failed] = std::from_chars(text.data(), end, number);
    if (failed == std::errc::invalid_argument || rest != end)
      throw CLI::ValidationError(option, "'" + text + "' is not a whole number");
    if (failed != std::errc() || number < range.least || number > range.most) {
      throw CLI::ValidationError(
          option, text + " is not from " + std::to_string(range.least) + " to " + std::to_string(range.most));
    }
    store(number);
  };
  return command.add_option_function<std::string>(option, read, about)->type_name("N");
}

}  // namespace gpumem::cli
