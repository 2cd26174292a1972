#pragma once
#include "daemon/kubernetes/device_plugin/device_plugin.h"
#include "daemon/kubernetes/program.h"

namespace gpumem::kubernetes {

/// The command line of gpumem-device-plugin.
struct PluginCommandLine {
  DevicePlugin::Options plugin;
  LogOptions log;
};

/// Reads the command line; ends the process for --help, --version and usage errors (status 2).
PluginCommandLine parse_plugin_command_line(int argc, char** argv);

}  // namespace gpumem::kubernetes
