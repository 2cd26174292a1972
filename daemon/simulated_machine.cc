#include "daemon/simulated_machine.h"

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

}  // namespace gpumem
