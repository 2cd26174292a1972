#pragma once
#include <string>
#include <vector>

#include "client/cli/run/command_line.h"
#include "client/cli/run/run_environment.h"

namespace CLI {
class App;
}

namespace gpumem::cli {

struct RunOptions {
  std::vector<std::string> words;  ///< the command; none: the user's shell
  std::string device;              ///< UUID, the beginning of one, or a place in `gpumem status`; empty: any
  ShimSettings settings{};         ///< as far as the command line says it
};

/// `gpumem run`: runs a command with the drop-in driver and tells what it has used. Answers the exit status;
/// ends this process by a signal if the command has ended so.
int run_program(RunOptions options);

/// Adds `gpumem run` to the command line. `status` becomes its exit status. The references outlive `app`.
void add_run_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status);

}  // namespace gpumem::cli
