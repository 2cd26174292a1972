#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/nvml.h"
#include "daemon/host/config/policy_compiler.h"
#include "daemon/host/state/journal.h"
#include "gpumem/result.h"

namespace gpumem {

/// Makes `folder`, one of the broker's, the simulated machine of `spec` for `--simulate`, if it is not yet.
/// Returns the folder.
/// Errors  as sim::create_machine.
Result<std::filesystem::path> make_simulated_machine(const std::filesystem::path& folder,
                                                     const std::string& spec);

/// Whether `folder` is the simulated machine of `spec`.
bool is_simulated_machine(const std::filesystem::path& folder, const std::string& spec);

/// Takes it away. Running programs keep what they have mapped. Errors  kNotFound: no machine there.
Result<void> remove_simulated_machine(const std::filesystem::path& folder);

/// The machine's GPUs as the broker finds them when it starts.
struct Machine {
  const cuda::Driver* driver = nullptr;
  std::unique_ptr<cuda::Nvml> nvml;              ///< null: there is none
  std::string driver_version;                    ///< for people
  std::vector<host::DeviceFacts> devices;        ///< the machine's own memory is the last
  std::optional<std::vector<int>> host_nodes{};  ///< as host::Loop::Options
};

/// Opens the driver in `driver_folder` (empty: the system's), and looks for displays in `display_folder`
/// (host::kGraphicsCards). Makes no context.
/// Errors  kNotFound, kFailedPrecondition: no driver, no device.
Result<Machine> find_machine(const std::filesystem::path& driver_folder,
                             const std::filesystem::path& display_folder);

/// Changes when a driver comes: what there is of its library, its device files and its kernel module.
std::string driver_traces(const std::filesystem::path& driver_folder);

/// Counts what the broker before has lent as part of the pools. `before`  its journal.
void count_broker_before(Machine& machine, const host::Journal::Content& before);

/// Tries which of the devices that the configuration lends can have fabric handles, if it asks for them. The
/// others are lent without, and the log says why.
void try_fabric(Machine& machine, const host::Config& config);

}  // namespace gpumem
