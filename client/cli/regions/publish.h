#pragma once
#include <filesystem>
#include <memory>

#include "client/cli/regions/publication.h"
#include "client/cli/regions/region_source.h"

namespace gpumem::cli {

/// `gpumem publish`: publishes a file's bytes, as publish_source(). `options.name`  empty: the file's.
/// Answers the exit status.
int publish_file(PublicationOptions options, const std::filesystem::path& file);

/// A file of any bytes. check() refuses one that was written to since it was opened.
std::unique_ptr<RegionSource> plain_file(std::filesystem::path path);

}  // namespace gpumem::cli
