#pragma once
#include <filesystem>
#include <memory>

#include "client/cli/regions/publication.h"
#include "client/cli/regions/region_source.h"

namespace gpumem::cli {

/// `gpumem publish`: publishes a file, as publish_source(): one of safetensors, by its name's end, as arrays,
/// any other one's bytes as they are. `options.name`  empty: the file's. `raw`  takes one of safetensors for
/// any other. Answers the exit status.
int publish_file(PublicationOptions options, const std::filesystem::path& file, bool raw);

/// A file of any bytes. check() refuses one that was written to since it was opened.
std::unique_ptr<RegionSource> plain_file(std::filesystem::path path);

}  // namespace gpumem::cli
