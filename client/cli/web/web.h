#pragma once
#include <string>

namespace CLI {
class App;
}

namespace gpumem::cli {

/// Adds `gpumem web`. `runtime_dir`  as given on the command line, when the command runs.
void add_web_command(CLI::App& app, const std::string& runtime_dir, int& status);

}  // namespace gpumem::cli
