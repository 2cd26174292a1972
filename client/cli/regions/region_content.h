#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "client/cli/regions/region_reader.h"

namespace gpumem::cli {

/// `gpumem cat`: the region's bytes on standard output. Of a region with a layout, Python writes a file of
/// safetensors, in place of this program, unless `raw`. Answers the exit status.
int cat_region(const std::filesystem::path& runtime_folder, const RegionName& name, bool raw);

/// `gpumem verify`: whether the region's bytes are the file's, and where they first differ. Of a region with
/// a layout and a file of safetensors, Python compares those that the file is published as. Answers the exit
/// status: 0 equal, 1 not, or as report().
int verify_region(const std::filesystem::path& runtime_folder, const RegionName& name,
                  const std::filesystem::path& file, bool json);

/// Runs Python's `gpumem.safetensors` in place of this program, with the `words` of its command line.
/// Answers the exit status, after saying why, if there is no `python3` on the PATH.
int run_python(const std::filesystem::path& runtime_folder, std::vector<std::string> words);

}  // namespace gpumem::cli
