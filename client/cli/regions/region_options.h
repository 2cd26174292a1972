#pragma once
#include <CLI/CLI.hpp>
#include <chrono>

#include "client/cli/regions/publication.h"
#include "client/cli/regions/region_reader.h"

// Options that several commands about regions have. What they are stored to outlives the command.

namespace gpumem::cli {

void add_json_flag(CLI::App& command, bool& json);
void add_version(CLI::App& command, RegionName& region);
/// --wait and --newer-than. After add_version().
void add_wait(CLI::App& command, RegionName& region);
void add_owner(CLI::App& command, RegionName& region);
void add_region_name(CLI::App& command, RegionName& region);
/// `about`  for --help.
void add_time(CLI::App& command, const char* option, std::chrono::milliseconds& time, const char* about);
/// How and where a region is published: all but its name.
void add_publication(CLI::App& command, PublicationOptions& options);

}  // namespace gpumem::cli
