#include "daemon/configuration.h"

#include <cstdlib>
#include <string>

#include "daemon/host/runtime_folder.h"

namespace gpumem {
namespace {

constexpr const char* kDefaultConfig = "/etc/gpumemd/gpumemd.toml";
constexpr const char* kDefaultState = "/var/lib/gpumemd";

// The folder of the command line, else of the file, else of the service manager. A broker with a runtime
// folder of its own is not the machine's broker: its state is in that folder, not in the machine's.
std::filesystem::path state_folder(const Options& options, const host::Config& config) {
  if (!options.state_folder.empty()) return options.state_folder;
  if (!config.state_folder.empty()) return config.state_folder;
  if (const char* told = std::getenv("STATE_DIRECTORY"); told != nullptr && *told != '\0') {
    const std::string folders = told;  // several, with colons between them, if there are more
    return folders.substr(0, folders.find(':'));
  }
  return options.runtime_folder.empty() ? std::filesystem::path(kDefaultState)
                                        : config.runtime_folder / "state";
}

}  // namespace

Result<host::Config> read_config(const Options& options) {
  std::error_code unknown;  // whether it is there: then reading it says why
  const bool named = !options.config.empty();
  const bool none = !named && !std::filesystem::exists(kDefaultConfig, unknown) && !unknown;
  auto config = none ? host::Config{} : host::load_config(named ? options.config : kDefaultConfig);
  if (!config) return config.error();
  if (!options.runtime_folder.empty()) config->runtime_folder = options.runtime_folder;
  config->state_folder = state_folder(options, *config);
  return config;
}

Result<std::optional<std::uint32_t>> admin_gid(const host::Config& config) {
  if (config.admin_group.empty()) return std::optional<std::uint32_t>();
  auto gid = host::resolve_group(config.admin_group, "admin_group");
  if (!gid) return gid.error();
  return std::optional<std::uint32_t>(*gid);
}

Result<std::filesystem::path> runtime_folder_of(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  return config->runtime_folder;
}

}  // namespace gpumem
