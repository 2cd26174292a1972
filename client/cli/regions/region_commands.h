#pragma once
#include <string>

namespace CLI {
class App;
}

namespace gpumem::cli {

/// Adds `regions`, `publish`, `cat` and `verify`. `runtime_dir`  as the command line has it; `status`  gets
/// the exit status of the one that runs. Both outlive `app`.
void add_region_commands(CLI::App& app, const std::string& runtime_dir, int& status);

}  // namespace gpumem::cli
