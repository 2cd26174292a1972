#pragma once
#include <string>

#include "daemon/kubernetes/device_specs.h"

namespace CLI {
class App;
}

namespace gpumem::kubernetes {

/// What containers get, as both programs' command lines say it. `device_kind`  becomes empty for `none` when
/// the command line is parsed.
void add_container_options(CLI::App& app, DeviceSpecs::Options& specs, std::string& device_kind);

}  // namespace gpumem::kubernetes
