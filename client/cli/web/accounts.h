#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "client/cli/views/views.h"
#include "gpumem/result.h"

namespace gpumem::cli::web {

/// The use of each device by each tenant, in bytes times seconds: {"rows": [{"tenant", "device",
/// "charged", "kept", "waiting"}]}. `since`  seconds since 1970: from gpumem-history; none: from the broker,
/// since the machine started. Errors  as of Monitor::accounts() and ask_history().   Blocks.
Result<Json> accounts_json(const std::filesystem::path& runtime_folder, std::optional<std::int64_t> since);

}  // namespace gpumem::cli::web
