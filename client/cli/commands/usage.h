#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/text/printable.h"

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace gpumem::cli {

/// The one of `names` that `word` was most likely meant to be; empty: none is near. `most`  letters that may
/// be other ones; 0: two, or a third of a long word.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names,
                         std::size_t most = 0);

/// The message for a command line with an unknown command or without a command, for which `app` has raised
/// `error`: the word, the nearest command, and the list of commands. Empty: the error is another one.
std::string unknown_command(const CLI::App& app, const CLI::ParseError& error);

/// Moves what stands before the command, options of it, behind it: `--json ps` becomes `ps --json`. `words`
/// as of main().
void move_behind_command(const CLI::App& app, std::vector<const char*>& words);

/// The words that may stand in the place of the last of `words`, each with what it is for: commands and
/// options, one a line, a tab between. Empty: none that is known here, as a file. For completion in shells.
std::string completions(const CLI::App& app, const std::vector<std::string>& words);

/// Adds --json.
void add_json_flag(CLI::App& command, bool& json);

/// How a command shows tables.
struct TableFlags {
  bool json = false;
  bool is_long = false;
};
/// Adds --json and --long.
void add_table_flags(CLI::App& command, TableFlags& flags);
/// Adds an option whose text is a time; `store`  is given it.
void add_time(CLI::App& command, const char* option, std::function<void(std::chrono::milliseconds)> store,
              const char* about);

/// Which numbers an option takes.
struct NumberRange {
  std::uint64_t least = 0;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
};
/// Adds an option whose text is a whole number in `range`; `store`  is given it.
CLI::Option* add_number(CLI::App& command, const char* option, std::function<void(std::uint64_t)> store,
                        const char* about, NumberRange range = {});

/// For words that go into a message to the broker: it carries nothing but UTF-8, and would say less of it.
inline std::string refuse_unprintable(const std::string& text) {
  return is_printable(text) ? std::string() : "not UTF-8, or it has control characters in it";
}

}  // namespace gpumem::cli
