#include <glob.h>
#include <unistd.h>

#include "client/cli/check.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"

namespace gpumem::cli {
namespace {

using State = Finding::State;

std::string kernel_version(const std::string& folder) {
  auto nvml = cuda::Nvml::open(folder);
  if (!nvml) return {};
  auto version = (*nvml)->driver_version();
  return version ? ", driver " + *version : std::string();
}

Finding check_nodes() {
  glob_t nodes{};
  ::glob("/dev/nvidia*", 0, nullptr, &nodes);
  std::string closed;
  for (std::size_t i = 0; i < nodes.gl_pathc; ++i) {
    const std::string node = nodes.gl_pathv[i];
    const bool numbered = node.find_last_not_of("0123456789") == std::string("/dev/nvidia").size() - 1;
    const bool needed = numbered || node == "/dev/nvidiactl" || node == "/dev/nvidia-uvm";
    if (needed && ::access(node.c_str(), R_OK | W_OK) != 0) closed += " " + node;
  }
  const bool any = nodes.gl_pathc > 0;
  ::globfree(&nodes);
  if (!any) {
    return {"device_nodes", State::kFail, "there are no device nodes /dev/nvidia*",
            "load the driver (nvidia-smi), or pass the devices to this container (docker run --gpus all)"};
  }
  if (closed.empty()) return {"device_nodes", State::kOk, "/dev/nvidia* can be opened", ""};
  return {"device_nodes", State::kFail, "you may not open" + closed,
          "ask the administrator: the nodes' group, or mode 0666"};
}

}  // namespace

void check_driver(const std::string& folder, std::vector<Finding>& findings) {
  if (folder.empty()) findings.push_back(check_nodes());
  auto driver = cuda::Driver::open(folder);
  if (!driver) {
    findings.push_back({"driver", State::kFail, driver.error().message, ""});
    return;
  }
  findings.push_back(
      {"driver", State::kOk,
       "CUDA " + (*driver)->version() + kernel_version(folder) + (folder.empty() ? "" : ", in " + folder),
       ""});
  for (const cuda::Device& device : (*driver)->devices()) {
    findings.push_back({"device", State::kOk,
                        std::to_string(device.ordinal) + ": " + to_string(device.uuid) + " " + device.name +
                            ", " + to_string(device.total),
                        ""});
  }
}

}  // namespace gpumem::cli
