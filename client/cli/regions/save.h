#pragma once
#include <filesystem>

#include "client/cli/regions/region_reader.h"

namespace gpumem::cli {

struct SaveOptions {
  std::filesystem::path runtime_folder;
  RegionName region;
  std::filesystem::path file;
  bool force = false;  ///< replaces a file that is there
  bool json = false;
};

/// `gpumem regions save`: writes a region to a file, layout included, through one buffer. The file is whole
/// or not there. Answers the exit status.
int save_region(const SaveOptions& options);

}  // namespace gpumem::cli
