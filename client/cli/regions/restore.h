#pragma once
#include <filesystem>

#include "client/cli/regions/publication.h"

namespace gpumem::cli {

/// `gpumem regions restore`: publishes what `gpumem regions save` has written, as publish_source(). A file
/// that was truncated or changed is refused, and nothing is published. Answers the exit status.
int restore_region(const PublicationOptions& options, const std::filesystem::path& file);

}  // namespace gpumem::cli
