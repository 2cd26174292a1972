#include "daemon/kubernetes/container_options.h"

#include <CLI/CLI.hpp>
#include <map>

namespace gpumem::kubernetes {

void add_container_options(CLI::App& app, DeviceSpecs::Options& specs, std::string& device_kind) {
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
  app.add_option("--device-cdi-kind", device_kind,
                 "CDI kind of the devices, named by UUID; none: others give them to containers")
      ->capture_default_str();
  app.final_callback([&device_kind] {
    if (device_kind == "none") device_kind.clear();
  });
}

}  // namespace gpumem::kubernetes
