#include "daemon/kubernetes/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>

namespace gpumem::kubernetes {
namespace {

void add_node_options(CLI::App& app, Driver::Options& driver) {
  app.add_option("--node-name", driver.node, "The node's name (default: $NODE_NAME)")
      ->envname("NODE_NAME")
      ->required();
  app.add_option("--driver-name", driver.name, "Name of the driver, as DeviceClasses select it")
      ->capture_default_str();
  app.add_option("--instance", driver.instance,
                 "Part of the names of the sockets, so that a rolling update has two (default: $POD_UID)")
      ->envname("POD_UID");
  app.add_option("--kubelet-dir", driver.kubelet_folder, "Folder of the kubelet, the same as on the host")
      ->capture_default_str();
}

void add_container_options(CLI::App& app, Driver::Options& driver) {
  DeviceSpecs::Options& specs = driver.specs;
  const std::map<std::string, Injection> injections{{"preload", Injection::kPreload},
                                                    {"library-path", Injection::kLibraryPath},
                                                    {"none", Injection::kNone}};
  app.add_option("--cdi-dir", specs.folder, "Folder of the container runtime's device specifications")
      ->capture_default_str();
  app.add_option("--runtime-dir", specs.runtime_folder,
                 "Folder of the broker's sockets, the same as on the host")
      ->capture_default_str();
  app.add_option("--shim-dir", specs.shim_folder, "Folder of the drop-in driver on the host")
      ->capture_default_str();
  app.add_option("--inject", specs.injection,
                 "How containers load the drop-in driver: preload, library-path, or none")
      ->transform(CLI::Transformer(injections))
      ->default_str("preload");
  app.add_flag("!--no-framework-settings", specs.framework_settings,
               "Leave the variables of frameworks alone");
  app.add_option("--device-cdi-kind", driver.device_kind,
                 "CDI kind of the devices, named by UUID; none: others give them to containers")
      ->capture_default_str();
}

void add_server_options(CLI::App& app, CommandLine& line) {
  auto* url =
      app.add_option("--api-server", line.api_server, "https://HOST[:PORT] (default: as pods find it)");
  app.add_option("--token-file", line.token_file, "The token for that server, read for each call")
      ->needs(url);
  app.add_option("--ca-file", line.ca_file, "The authorities that may vouch for it (default: the system's)")
      ->needs(url);
}

void add_log_options(CLI::App& app, CommandLine& line) {
  const std::map<std::string, LogFormat> formats{{"text", LogFormat::kText}, {"json", LogFormat::kJson}};
  app.add_option("--log-format", line.log_format, "text (for people) or json (one object a line)")
      ->transform(CLI::CheckedTransformer(formats));
  app.add_option("--log-level", line.log_level, "trace, debug, info, warning, error, critical or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}))
      ->capture_default_str();
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app{"gpumem-dra gives pods of Kubernetes amounts of GPU memory, from the gpumemd of its node."};
  app.set_version_flag("--version", "gpumem-dra " GPUMEM_VERSION);
  add_node_options(app, line.driver);
  add_container_options(app, line.driver);
  add_server_options(app, line);
  add_log_options(app, line);
  app.footer(
      "It serves the kubelet until SIGTERM or SIGINT; what is prepared stays. Exit status: 0 stopped, 1 "
      "cannot run,\n"
      "2 wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  if (line.driver.device_kind == "none") line.driver.device_kind.clear();
  return line;
}

Result<ApiServer::Options> api_server_of(const CommandLine& line) {
  if (line.api_server.empty()) return ApiServer::in_cluster();
  auto endpoint = parse_endpoint(line.api_server);
  if (!endpoint) return endpoint.error().in("--api-server");
  return ApiServer::Options{
      .endpoint = std::move(*endpoint), .token_file = line.token_file, .ca_file = line.ca_file};
}

}  // namespace gpumem::kubernetes
