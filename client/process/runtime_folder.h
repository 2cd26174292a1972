#pragma once
#include <filesystem>
#include <string>

#include "gpumem/result.h"

namespace gpumem::client {

/// The folder of the broker's sockets: `named` if not empty, else the environment's GPUMEM_RUNTIME_DIR,
/// else /run/gpumemd. Absolute, so that it stays the same folder when the program changes its working
/// directory. The environment does not count in a set-user-id program.
std::filesystem::path runtime_folder(const std::string& named);
/// Likewise, as an absolute path: for processes that may have another working directory.
/// Errors  kNotFound: the path is relative, and the working directory was deleted.
Result<std::filesystem::path> absolute_runtime_folder(const std::string& named);

/// Checks that this process can trust the broker at `socket`: that broker names the driver to be loaded.
/// Trusted are root and the process's own user. The folder and the socket must be of one of them, or root
/// must have placed the folder. Nobody but root writes to /run, so /run/gpumemd may be of the user gpumemd.
/// A missing folder passes: nobody can connect there.
/// Errors  kPermissionDenied, names the owner and what to do.
Result<void> check_owner(const std::filesystem::path& socket);

/// Whether the lane's socket is in `folder` and this process may connect to it. Makes no socket.
bool may_connect(const std::filesystem::path& folder);

/// The folder of the driver library: the environment's GPUMEM_DRIVER_DIR, else `told` (by the broker).
std::filesystem::path driver_folder(const std::string& told);

/// Why connecting to `socket` failed with errno `number`, and what to do about it.
/// kUnavailable (nobody listens, or takes no connection in time), kPermissionDenied, kInvalidArgument (path
/// too long).
Error connect_error(const std::filesystem::path& socket, int number);

}  // namespace gpumem::client
