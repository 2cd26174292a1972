#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "daemon/host/config.h"
#include "daemon/options.h"

namespace gpumem {

/// The configuration with what the command line and the surroundings say in place of it.
/// Errors  as host::load_config.
Result<host::Config> read_config(const Options& options);

/// The number of the group whose members administrate; none: there is no such group configured.
/// Errors  kInvalidArgument: the machine does not have it.
Result<std::optional<std::uint32_t>> admin_gid(const host::Config& config);

/// The folder of the sockets of the broker with these options. Errors  of the configuration.
Result<std::filesystem::path> runtime_folder_of(const Options& options);

}  // namespace gpumem
