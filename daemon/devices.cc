#include "daemon/devices.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "base/log.h"
#include "cuda/memory.h"
#include "daemon/host/driver/host_source.h"
#include "daemon/host/system/displays.h"
#include "sim/machine/machine.h"

namespace gpumem {

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

Result<Machine> find_machine(const std::filesystem::path& driver_folder,
                             const std::filesystem::path& display_folder) {
  auto driver = cuda::Driver::open(driver_folder);
  if (!driver) return driver.error();
  auto nvml = cuda::Nvml::open(driver_folder);
  if (!nvml)
    spdlog::warn("no management library: {}; memory in use by others is not known", nvml.error().message);
  Machine machine;
  machine.driver = *driver;
  machine.driver_version = "CUDA " + (*driver)->version();
  if (nvml) {
    machine.nvml = std::move(*nvml);
    if (const auto version = machine.nvml->driver_version()) machine.driver_version += ", driver " + *version;
  }
  const auto displays = host::cards_with_display(display_folder);
  for (const cuda::Device& device : (*driver)->devices()) {
    host::DeviceFacts& facts = machine.devices.emplace_back(host::DeviceFacts{.device = device});
    facts.has_display = displays.contains(device.pci_address);
    const auto memory =
        machine.nvml ? machine.nvml->memory(device.uuid) : Result<cuda::DeviceMemory>(nvml.error());
    if (!memory) facts.no_use = memory.error().message;
  }
  machine.devices.push_back(host::facts_of_host(host::memory_of_machine()));
  return machine;
}

std::string driver_traces(const std::filesystem::path& driver_folder) {
  std::error_code ignored;
  const auto library = driver_folder.empty() ? "/etc/ld.so.cache" : driver_folder / "libcuda.so.1";
  std::set<std::string> traces{
      std::to_string(std::filesystem::last_write_time(library, ignored).time_since_epoch().count())};
  for (const auto& file : std::filesystem::directory_iterator("/dev", ignored)) {
    if (const auto name = file.path().filename().string(); name.starts_with("nvidia")) traces.insert(name);
  }
  std::ifstream majors("/proc/devices");
  for (std::string line; std::getline(majors, line);)
    if (line.find("nvidia") != std::string::npos) traces.insert(line);
  std::string all;
  for (const std::string& trace : traces) all += trace + "\n";
  return all;
}

void count_broker_before(Machine& machine, const host::Journal::Content& before) {
  for (host::DeviceFacts& facts : machine.devices) {
    const auto place = std::ranges::find(before.devices, facts.uuid());
    if (place == before.devices.end()) continue;
    facts.lent = before.checkpoint.lent(static_cast<core::DeviceIndex>(place - before.devices.begin()));
  }
}

void try_fabric(Machine& machine, const host::Config& config) {
  if (!config.fabric_handles) return;
  for (host::DeviceFacts& facts : machine.devices) {
    const std::string uuid = facts.uuid();
    if (facts.is_host || (!config.devices.empty() && !config.devices.contains(uuid))) continue;
    const auto tried = cuda::check_fabric(*machine.driver, facts.device);
    facts.no_fabric = tried ? "" : tried.error().message;
    if (!tried) spdlog::warn("{} is lent without fabric handles: {}", uuid, facts.no_fabric);
  }
}

}  // namespace gpumem
