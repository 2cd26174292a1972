#include "daemon/devices.h"

#include <algorithm>

#include "base/log.h"
#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "sim/machine/machine.h"

namespace gpumem {
namespace {

// What others use now cannot be reserved. Without the management library nobody tells without a context.
Bytes obtainable(const cuda::Nvml* nvml, const cuda::Device& device) {
  if (nvml == nullptr) return device.total;
  const auto memory = nvml->memory(device.uuid);
  if (memory) return std::min(memory->free, device.total);
  spdlog::warn("{}: {}; assuming that nobody else uses it", to_string(device.uuid), memory.error().message);
  return device.total;
}

}  // namespace

Result<std::filesystem::path> make_simulated_machine(const std::filesystem::path& folder,
                                                     const std::string& spec) {
  auto libraries = sim::find_libraries();
  if (!libraries) return libraries.error();
  if (auto made = sim::create_machine(folder, spec, *libraries); !made) return made.error().in("--simulate");
  return folder;
}

bool is_simulated_machine(const std::filesystem::path& folder, const std::string& spec) {
  const auto machine = sim::load_machine(folder);
  return machine && machine->spec == spec;
}

Result<void> remove_simulated_machine(const std::filesystem::path& folder) {
  return sim::remove_machine(folder);
}

Result<Machine> find_machine(const std::filesystem::path& driver_folder) {
  auto driver = cuda::Driver::open(driver_folder);
  if (!driver) return driver.error();
  auto nvml = cuda::Nvml::open(driver_folder);
  if (!nvml)
    spdlog::warn("no management library: {}; memory in use by others is not known", nvml.error().message);
  Machine machine;
  machine.driver = *driver;
  machine.driver_version = "CUDA " + (*driver)->version();
  if (nvml) {
    if (const auto version = (*nvml)->driver_version()) machine.driver_version += ", driver " + *version;
  }
  for (const cuda::Device& device : (*driver)->devices()) {
    machine.devices.push_back({device, obtainable(nvml ? nvml->get() : nullptr, device)});
  }
  return machine;
}

// Memory that the previous broker's clients hold, contexts included, does not make the pool smaller: it
// returns to the pool when the clients release it.
void count_broker_before(Machine& machine, const host::Journal::Content& before) {
  for (host::DeviceFacts& facts : machine.devices) {
    const auto place =
        std::ranges::find(before.devices, to_string(facts.device.uuid), &host::Journal::Device::uuid);
    Bytes once{};
    if (place != before.devices.end()) {
      facts.lent = before.checkpoint.lent(static_cast<core::DeviceIndex>(place - before.devices.begin()));
      once = place->obtainable;
    }
    facts.obtainable = std::min(facts.device.total, std::max(facts.obtainable + facts.lent, once));
  }
}

void try_fabric(Machine& machine, const host::Config& config) {
  if (!config.fabric_handles) return;
  for (host::DeviceFacts& facts : machine.devices) {
    const std::string uuid = to_string(facts.device.uuid);
    if (!config.devices.empty() && !config.devices.contains(uuid)) continue;
    const auto tried = cuda::check_fabric(*machine.driver, facts.device);
    facts.no_fabric = tried ? "" : tried.error().message;
    if (!tried) spdlog::warn("{} is lent without fabric handles: {}", uuid, facts.no_fabric);
  }
}

}  // namespace gpumem
