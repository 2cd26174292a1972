#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

/// The socket of gpumem-history: the environment's GPUMEM_HISTORY_SOCKET, else
/// /run/gpumem-history/history.sock.
std::filesystem::path history_socket();

/// Asks the history, by HTTP. `target`  a path with its query.
/// Errors  kNotFound: the service does not run; says how to get it. kPermissionDenied, kInvalidArgument and
///         kResourceExhausted: it refuses. kDeadlineExceeded, kInternal: it does not answer, or not well.
///         Blocks.
Result<nlohmann::json> ask_history(const std::filesystem::path& socket, const std::string& method,
                                   const std::string& target);

}  // namespace gpumem::cli
