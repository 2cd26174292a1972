#pragma once
#include "client/cli/regions/region_reader.h"

namespace gpumem::cli {

/// `gpumem cat`: the region's bytes on standard output. Answers the exit status.
int cat_region(const std::filesystem::path& runtime_folder, const RegionName& name);

/// `gpumem verify`: whether the region's bytes are the file's, and where they first differ. Answers the exit
/// status: 0 equal, 1 not, or as report().
int verify_region(const std::filesystem::path& runtime_folder, const RegionName& name,
                  const std::filesystem::path& file, bool json);

}  // namespace gpumem::cli
