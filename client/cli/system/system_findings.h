#pragma once
#include <filesystem>
#include <vector>

#include "client/cli/check/check.h"

namespace gpumem::cli {

/// Whether system mode is enabled, what the loader finds, and which programs are served.
std::vector<Finding> system_findings(const std::filesystem::path& runtime_folder);

}  // namespace gpumem::cli
