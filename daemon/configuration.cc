#include "daemon/configuration.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/program.h"
#include "daemon/host/state/folder_lock.h"

namespace gpumem {
namespace {

// Left out of --help: no user needs them. All but the first are for tests.
void add_hidden_options(CLI::App& app, Options& options) {
  app.add_option("--try-host-node", options.try_host_node)->group("");
  app.add_flag("!--without-pass-rights", options.kernel.pass_rights)->group("");
  app.add_flag("!--without-peer-pidfd", options.kernel.peer_pidfd)->group("");
  app.add_option("--process-dir", options.kernel.pods.processes)->group("");
  app.add_option("--display-dir", options.display_folder)->group("");
  app.add_option("--subuid-file", options.subuid_file)->group("");
  app.add_option_function<int>("--api-idle-ms",
                               [&](int count) { options.api_idle = std::chrono::milliseconds(count); })
      ->group("");
  app.add_option_function<int>("--look-again-ms",
                               [&](int count) { options.look_again = std::chrono::milliseconds(count); })
      ->group("");
}

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
                                        : host::private_folder_of(config.runtime_folder) / "state";
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options options;
  CLI::App app{"gpumemd lends the memory of this machine's GPUs to many processes, within quotas."};
  app.set_version_flag("--version", "gpumemd " GPUMEM_VERSION);
  app.add_option("--config", options.config,
                 "Configuration file (default /etc/gpumemd/gpumemd.toml, if it is there)");
  app.add_flag("--check-config", options.check_config,
               "Check the configuration against this machine, say what it comes to, and exit");
  app.add_flag(
         "--upgrade", options.upgrade,
         "Have the broker that serves the runtime folder go on as this version of the program, and exit")
      ->excludes("--check-config");
  app.add_option("--runtime-dir", options.runtime_folder, "Folder of the sockets (default /run/gpumemd)");
  app.add_option(
      "--state-dir", options.state_folder,
      "Folder of what survives the broker: quotas set at run time (default /var/lib/gpumemd; with\n"
      "--runtime-dir the folder private/state in that)");
  auto* simulate =
      app.add_option("--simulate", options.simulate,
                     "Lend simulated GPUs over host memory, for example 2x24GiB; no GPU is needed");
  app.add_option("--driver-dir", options.driver_folder,
                 "Folder of libcuda.so.1 and libnvidia-ml.so.1 (default: the system's search path)")
      ->excludes(simulate);
  add_log_options(app, options.log);
  add_hidden_options(app, options);
  app.footer(
      "Signals: SIGHUP reloads the configuration, SIGUSR2 starts the program anew in the same process, "
      "SIGTERM "
      "and\n"
      "SIGINT stop the broker. Clients keep running on the memory they have. Exit status: 0 stopped, 1 "
      "cannot "
      "run,\n"
      "2 wrong usage.");
  parse_or_exit(app, argc, argv);
  // No display is connected to a simulated GPU.
  if (options.display_folder.empty() && options.simulate.empty())
    options.display_folder = host::kGraphicsCards;
  return options;
}

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

unsigned metrics_gid(const host::Config& config) {
  return (config.metrics.group.empty() ? config.admin_gid : config.metrics.gid).value_or(::getegid());
}

Result<std::filesystem::path> runtime_folder_of(const Options& options) {
  auto config = read_config(options);
  if (!config) return config.error();
  return config->runtime_folder;
}

}  // namespace gpumem
