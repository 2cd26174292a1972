#pragma once
#include <string>

#include "daemon/kubernetes/device_specs.h"

namespace CLI {
class App;
}

namespace gpumem::kubernetes {

/// Adds the options for containers that both programs have. Parsing the command line makes `device_kind`
/// empty for `none`.
void add_container_options(CLI::App& app, DeviceSpecs::Options& specs, std::string& device_kind);

}  // namespace gpumem::kubernetes
