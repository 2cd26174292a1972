#include "base/log.h"
#include "daemon/kubernetes/device_plugin/device_plugin.h"
#include "daemon/kubernetes/device_plugin/options.h"
#include "daemon/kubernetes/program.h"
#include "daemon/kubernetes/stop_signals.h"

using gpumem::kubernetes::fail;

int main(int argc, char** argv) {
  const auto line = gpumem::kubernetes::parse_plugin_command_line(argc, argv);
  if (auto started = gpumem::start_log(line.log.format, line.log.level); !started)
    return fail(started.error());
  const gpumem::kubernetes::StopSignals signals;
  auto plugin = gpumem::kubernetes::DevicePlugin::start(line.plugin);
  if (!plugin) return fail(plugin.error());
  signals.wait();
  spdlog::info("stopping; claims of pods stay");
  return 0;
}
