#include "daemon/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

namespace gpumem {
namespace {

// Left out of --help: no user needs them.
void add_test_options(CLI::App& app, Options& options) {
  app.add_flag("!--without-pass-rights", options.kernel.pass_rights)->group("");
  app.add_flag("!--without-peer-pidfd", options.kernel.peer_pidfd)->group("");
  app.add_option("--process-dir", options.kernel.pods.processes)->group("");
  app.add_option_function<int>("--api-idle-ms",
                               [&](int count) { options.api_idle = std::chrono::milliseconds(count); })
      ->group("");
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
      "--runtime-dir the folder state in that)");
  auto* simulate =
      app.add_option("--simulate", options.simulate,
                     "Lend simulated GPUs over host memory, for example 2x24GiB; no GPU is needed");
  app.add_option("--driver-dir", options.driver_folder,
                 "Folder of libcuda.so.1 and libnvidia-ml.so.1 (default: the system's search path)")
      ->excludes(simulate);
  const std::map<std::string, LogFormat> formats{{"text", LogFormat::kText}, {"json", LogFormat::kJson}};
  app.add_option("--log-format", options.log_format, "text (for people) or json (one object a line)")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_option("--log-level", options.log_level, "trace, debug, info, warning, error, critical or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->capture_default_str();
  add_test_options(app, options);
  app.footer(
      "Signals: SIGHUP reloads the configuration, SIGUSR2 starts the program anew in the same process, "
      "SIGTERM "
      "and\n"
      "SIGINT stop the broker. Clients keep running on the memory they have. Exit status: 0 stopped, 1 "
      "cannot "
      "run,\n"
      "2 wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  return options;
}

}  // namespace gpumem
