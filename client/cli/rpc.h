#pragma once
#include <grpcpp/support/status.h>

#include <filesystem>

#include "gpumem/result.h"
#include "proto/channel.h"

namespace gpumem::cli {

/// Converts the failed `status` of a call to the broker at `socket` into an error.
Error call_error(const grpc::Status& status, const std::filesystem::path& socket);

}  // namespace gpumem::cli
