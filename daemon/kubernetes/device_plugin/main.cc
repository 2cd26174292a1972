#include <map>
#include <string>

#include "daemon/kubernetes/device_plugin/device_plugin.h"
#include "daemon/kubernetes/http/api_values.h"
#include "daemon/kubernetes/program.h"

namespace gpumem::kubernetes {
namespace {

// The command line of gpumem-device-plugin.
struct CommandLine {
  DevicePlugin::Options plugin;
  LogOptions log;
};

void add_resource_options(CLI::App& app, DevicePlugin::Options& plugin) {
  app.add_option_function<std::string>(
         "--unit",
         [&plugin](const std::string& text) {
           auto unit = parse_quantity(text);
           if (!unit) throw CLI::ValidationError("--unit", unit.error().message);
           const std::string named = quantity_text(*unit);  // in the resource's name
           if (named != text) throw CLI::ValidationError("--unit", "write " + named + " for " + text);
           plugin.unit = *unit;
         },
         "Memory of a unit, a multiple of 2Mi; it is in the resource's name")
      ->default_str("256Mi");
  app.add_option("--resource-domain", plugin.domain,
                 "What the resource's name begins with, before /memory-UNIT")
      ->capture_default_str();
  app.add_option("--kubelet-dir", plugin.kubelet_folder, "Folder of the kubelet")->capture_default_str();
}

void add_hand_over(CLI::App& app, PluginService::Options& service) {
  const std::map<std::string, HandOver> ways{{"cdi", HandOver::kRuntime}, {"kubelet", HandOver::kKubelet}};
  app.add_option(
         "--hand-over", service.hand_over,
         "Who gives containers what they need: cdi (the container runtime), or kubelet, for runtimes without "
         "CDI")
      ->transform(CLI::Transformer(ways))
      ->default_str("cdi");
}

// Ends the process for --help, --version and usage errors (status 2).
CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  CLI::App app{
      "gpumem-device-plugin gives pods of Kubernetes units of GPU memory, from the gpumemd of its node, "
      "where there is "
      "no Dynamic Resource Allocation."};
  app.set_version_flag("--version", "gpumem-device-plugin " GPUMEM_VERSION);
  add_resource_options(app, line.plugin);
  add_container_options(app, line.plugin.specs, line.plugin.service.device_kind);
  add_hand_over(app, line.plugin.service);
  add_log_options(app, line.log);
  parse(app, argc, argv, "claims of pods stay");
  return line;
}

}  // namespace
}  // namespace gpumem::kubernetes

using gpumem::fail;

int main(int argc, char** argv) {
  const auto line = gpumem::kubernetes::parse_command_line(argc, argv);
  if (auto started = gpumem::start_log(line.log.format, line.log.level); !started)
    return fail(started.error());
  const gpumem::kubernetes::StopSignals signals;
  auto plugin = gpumem::kubernetes::DevicePlugin::start(line.plugin);
  if (!plugin) return fail(plugin.error());
  signals.wait();
  spdlog::info("stopping; claims of pods stay");
  return 0;
}
