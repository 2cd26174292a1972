#pragma once
#include <filesystem>
#include <string>

#include "gpumem/result.h"

namespace gpumem::client {

/// The folder of the broker's sockets: `named` if not empty, else the environment's GPUMEM_RUNTIME_DIR,
/// else /run/gpumemd. The environment does not count in a set-user-id program.
std::filesystem::path runtime_folder(const std::string& named);

/// Whether the lane's socket is in `folder` and this process may connect to it. Makes no socket.
bool may_connect(const std::filesystem::path& folder);

/// The folder of the driver library: the environment's GPUMEM_DRIVER_DIR, else `told` (by the broker).
std::filesystem::path driver_folder(const std::string& told);

/// Why connecting to `socket` failed with errno `number`, and what to do about it.
/// kUnavailable (nobody listens, or takes no connection in time), kPermissionDenied, kInvalidArgument (path
/// too long).
Error connect_error(const std::filesystem::path& socket, int number);

}  // namespace gpumem::client
