#pragma once
#include <filesystem>
#include <memory>

#include "client/cli/regions/publication.h"
#include "client/cli/regions/region_source.h"

namespace gpumem::cli {

/// `gpumem regions restore`: publishes what `gpumem regions save` has written, as publish_source(). A file
/// that was truncated or changed is refused, and nothing is published. Answers the exit status.
int restore_region(const PublicationOptions& options, const std::filesystem::path& file);

/// What `gpumem regions save` has written. check() holds the bytes and the head, as open() has read it,
/// against the checksum.
std::unique_ptr<RegionSource> saved_file(std::filesystem::path path);

}  // namespace gpumem::cli
