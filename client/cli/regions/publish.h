#pragma once
#include <filesystem>

#include "client/cli/regions/publication.h"

namespace gpumem::cli {

/// `gpumem publish`: publishes a file's bytes, as publish_source(). `options.name`  empty: the file's.
/// Answers the exit status.
int publish_file(PublicationOptions options, const std::filesystem::path& file);

}  // namespace gpumem::cli
