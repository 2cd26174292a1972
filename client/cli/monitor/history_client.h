#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

/// Asks the history of the broker of `runtime_folder`, by HTTP: at the environment's GPUMEM_HISTORY_SOCKET,
/// else, of the machine's broker, at /run/gpumem-history/history.sock. `target`  a path with its query.
/// Errors  kNotFound: there is none; says how to get it. kPermissionDenied, kInvalidArgument and
///         kResourceExhausted: it refuses. kDeadlineExceeded, kInternal: it does not answer, or not well.
///         Blocks.
Result<nlohmann::json> ask_history(const std::filesystem::path& runtime_folder, const std::string& method,
                                   const std::string& target);

}  // namespace gpumem::cli
