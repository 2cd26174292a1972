#include <string>

#include "daemon/kubernetes/plugin/driver.h"
#include "daemon/kubernetes/program.h"

namespace gpumem::kubernetes {
namespace {

// The command line of gpumem-dra.
struct CommandLine {
  Driver::Options driver;
  std::string api_server;  // empty: as pods find it
  std::string token_file;
  std::string ca_file;
  LogOptions log;
};

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

void add_server_options(CLI::App& app, CommandLine& line) {
  auto* url =
      app.add_option("--api-server", line.api_server, "https://HOST[:PORT] (default: as pods find it)");
  app.add_option("--token-file", line.token_file, "The token for that server, read for each call")
      ->needs(url);
  app.add_option("--ca-file", line.ca_file, "The authorities that may vouch for it (default: the system's)")
      ->needs(url);
}

// Ends the process for --help, --version and usage errors (status 2).
CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app{"gpumem-dra gives pods of Kubernetes amounts of GPU memory, from the gpumemd of its node."};
  app.set_version_flag("--version", "gpumem-dra " GPUMEM_VERSION);
  add_node_options(app, line.driver);
  add_container_options(app, line.driver.specs, line.driver.device_kind);
  add_server_options(app, line);
  add_log_options(app, line.log);
  parse(app, argc, argv, "what is prepared stays");
  return line;
}

// The API server of the command line, or else of the environment of pods.
// Errors  kInvalidArgument: no URL that can be used. kFailedPrecondition: no pod.
Result<ApiServer::Options> api_server_of(const CommandLine& line) {
  if (line.api_server.empty()) return ApiServer::in_cluster();
  auto endpoint = parse_endpoint(line.api_server);
  if (!endpoint) return endpoint.error().in("--api-server");
  return ApiServer::Options{
      .endpoint = std::move(*endpoint), .token_file = line.token_file, .ca_file = line.ca_file};
}

}  // namespace
}  // namespace gpumem::kubernetes

using gpumem::fail;

int main(int argc, char** argv) {
  gpumem::kubernetes::CommandLine line = gpumem::kubernetes::parse_command_line(argc, argv);
  if (auto started = gpumem::start_log(line.log.format, line.log.level); !started)
    return fail(started.error());
  const gpumem::kubernetes::StopSignals signals;
  auto server = gpumem::kubernetes::api_server_of(line);
  if (!server) return fail(server.error());
  line.driver.server = std::move(*server);
  auto driver = gpumem::kubernetes::Driver::start(line.driver);
  if (!driver) return fail(driver.error());
  signals.wait();
  spdlog::info("stopping; what is prepared stays");
  return 0;
}
