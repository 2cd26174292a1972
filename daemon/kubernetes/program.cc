#include "daemon/kubernetes/program.h"

#include <map>

namespace gpumem::kubernetes {

void parse(CLI::App& app, int argc, char** argv, std::string_view what_stays) {
  app.footer("It serves the kubelet until SIGTERM or SIGINT; " + std::string(what_stays) +
             ". Exit status: 0 stopped, 1 cannot run,\n2 wrong usage.");
  parse_or_exit(app, argc, argv);
}

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
