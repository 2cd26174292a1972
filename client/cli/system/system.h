#pragma once
#include <string>

namespace CLI {
class App;
}

namespace gpumem::cli {

/// Adds `gpumem system`. `runtime_dir`  as given on the command line, when the command runs.
void add_system_command(CLI::App& app, const std::string& runtime_dir, int& status);

}  // namespace gpumem::cli
