#include "client/cli/commands/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

#include "base/text/time_format.h"

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

namespace {

const CLI::App* command_named(const CLI::App& context, std::string_view name) {
  for (const CLI::App* one : context.get_subcommands([](const CLI::App*) { return true; }))
    if (one->get_name() == name) return one;
  return nullptr;
}

void add_completion(std::string& text, const std::string& word, const std::string& begin,
                    const std::string& about) {
  if (word.starts_with(begin)) text += word + "\t" + about + "\n";
}

void add_options(std::string& text, const CLI::App& command, const std::string& begin) {
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      add_completion(text, "--" + name, begin, option->get_description());
}

}  // namespace

void move_behind_command(const CLI::App& app, std::vector<const char*>& words) {
  if (words.size() < 2 || *words[1] != '-') return;
  const auto place_of = [&](const CLI::App& context, std::size_t from) {
    for (std::size_t i = from; i < words.size(); ++i) {
      const bool is_value = i > 1 && std::string_view(words[i - 1]) == "--runtime-dir";
      if (!is_value && command_named(context, words[i]) != nullptr) return i;
    }
    return words.size();
  };
  const std::size_t command = place_of(app, 1);
  if (command == words.size()) return;
  const CLI::App& context = *command_named(app, words[command]);
  const bool is_nested = command + 1 < words.size() && command_named(context, words[command + 1]) != nullptr;
  const auto begin = words.begin() + 1;
  std::rotate(begin, words.begin() + static_cast<std::ptrdiff_t>(command),
              words.begin() + static_cast<std::ptrdiff_t>(command + (is_nested ? 2 : 1)));
}

std::string completions(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const CLI::App* context = &app;
  for (auto word = words.begin(); word + 1 != words.end(); ++word) {
    if (const CLI::App* const next = command_named(*context, *word))
      context = next;
    else if (*word == "--" || (context->get_prefix_command() && !word->starts_with('-')))
      return {};  // the command of `run`
  }
  std::string text;
  const std::string& begin = words.back();
  if (begin.starts_with('-')) {
    add_options(text, *context, begin);
    if (context != &app && !context->get_prefix_command()) add_options(text, app, begin);
    return text;
  }
  for (const CLI::App* one : context->get_subcommands([](const CLI::App*) { return true; }))
    add_completion(text, one->get_name(), begin, one->get_description());
  return text;
}

void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON: stable keys, sizes in bytes");
}

void add_table_flags(CLI::App& command, TableFlags& flags) {
  add_json_flag(command, flags.json);
  command.add_flag("--long", flags.is_long, "All columns, whole UUIDs, nothing cut");
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
