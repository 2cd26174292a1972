#include "client/cli/unknown_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <vector>

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

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  const bool is_near =
      best != names.end() && edit_distance(word, *best) <= std::max<std::size_t>(2, word.size() / 3);
  return is_near ? *best : std::string();
}

}  // namespace

std::string unknown_command(const CLI::App& app) {
  const CLI::App* context = &app;
  std::string path = app.get_name();
  for (auto parsed = context->get_subcommands(); !parsed.empty(); parsed = context->get_subcommands()) {
    context = parsed.front();
    path += " " + context->get_name();
  }
  std::vector<std::string> names;
  for (const CLI::App* one : context->get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  const auto words = app.remaining(true);
  const auto word =
      std::find_if(words.begin(), words.end(), [](const auto& one) { return !one.starts_with('-'); });
  if (names.empty() || word == words.end()) return {};
  const std::string near = nearest(*word, names);
  std::string text = path + ": there is no command '" + *word + "'";
  text += near.empty() ? "." : "; did you mean '" + near + "'?";
  text += "\nCommands:";
  for (const std::string& name : names) text += " " + name;
  return text + "\nRun with --help for more information.\n";
}

}  // namespace gpumem::cli
