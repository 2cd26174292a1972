#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/log.h"
#include "daemon/host/config/config.h"
#include "daemon/host/system/displays.h"
#include "daemon/host/system/process.h"
#include "gpumem/result.h"

namespace gpumem {

/// The command line of gpumemd.
struct Options {
  std::filesystem::path config;  ///< empty: the default file if there is one
  bool check_config = false;
  bool upgrade = false;
  std::string runtime_folder;  ///< empty: as configured
  std::string state_folder;    ///< empty: as configured
  std::string simulate;        ///< empty: the machine's own driver
  std::filesystem::path driver_folder;
  LogOptions log;
  std::filesystem::path display_folder;               ///< as host::cards_with_display(); tests have their own
  std::filesystem::path subuid_file = "/etc/subuid";  ///< tests have their own
  host::KernelFeatures kernel;                        ///< for tests: without what older kernels lack
  std::optional<int> try_host_node{};    ///< the program only tries this NUMA node: host_memory.h
  std::chrono::milliseconds api_idle{};  ///< for tests: as rpc::Server::Options; zero: the default
  std::chrono::milliseconds look_again = std::chrono::minutes(1);  ///< between two looks for what is missing
};

/// Reads the command line; ends the process for --help, --version and usage errors (status 2).
Options parse_options(int argc, char** argv);

/// The configuration with what the command line and the surroundings say in place of it.
/// Errors  as host::load_config.
Result<host::Config> read_config(const Options& options);

/// The group whose members may read the metrics by the Unix socket. A configured group that is missing opens
/// it to nobody else.
unsigned metrics_gid(const host::Config& config);

/// The folder of the sockets of the broker with these options. Errors  of the configuration.
Result<std::filesystem::path> runtime_folder_of(const Options& options);

/// Says what the configuration comes to on this machine for a broker that starts now, after the one that
/// serves the same runtime folder, if there is one. Changes nothing. Errors  as Daemon::start(), for what is
/// configured.
Result<void> check_config(const Options& options);

}  // namespace gpumem
