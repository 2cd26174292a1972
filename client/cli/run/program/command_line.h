#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/bytes.h"

namespace CLI {
class App;
}  // namespace CLI

namespace gpumem::cli {

// The commands `run`, `reserve` and `job`, and the parsing that they share.

/// A command line up to the first `--`, and what stands behind it. Of commands that run no command: the whole
/// line, and nothing.
struct SplitLine {
  std::vector<const char*> words;
  std::optional<std::vector<std::string>> behind_dashes;
};
SplitLine split_line(int argc, char** argv);

/// The first word that is no option of `command` begins the command to run; its options are its own.
/// `runtime_dir`  becomes what --runtime-dir says.
void take_command(CLI::App& command, std::string& runtime_dir);
/// The words of the command to run: what `command` has left of its line, and what stands behind the `--`.
/// Throws CLI::ParseError: they begin with an option, which `command` does not have.
std::vector<std::string> command_words(const CLI::App& command, const SplitLine& line);

/// Adds the option --name.
void add_name(CLI::App& command, std::string& name);

/// Whether `app` was asked for a command whose own failures are kOwnFailure.
bool runs_a_command(const CLI::App& app);

/// Adds `gpumem run` to the command line. `status` becomes its exit status. The references outlive `app`.
void add_run_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status);
/// Adds `gpumem reserve` to the command line; as add_run_command.
void add_reserve_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status);

/// Adds `gpumem job` to the command line; as add_run_command.
void add_job_command(CLI::App& app, const std::string& runtime_dir, int& status);

}  // namespace gpumem::cli
