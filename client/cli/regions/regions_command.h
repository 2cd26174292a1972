#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace gpumem::cli {

/// Adds `regions` and what is below it, as add_region_commands().
void add_regions_command(CLI::App& app, const std::string& runtime_dir, int& status);

}  // namespace gpumem::cli
