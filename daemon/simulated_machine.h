#pragma once
#include <filesystem>
#include <string>

#include "gpumem/result.h"

/// The simulated driver that `--simulate` lends, in a folder of the broker's.
namespace gpumem {

/// Makes `folder` the simulated machine of `spec`, where it is not yet. Returns the folder.
/// Errors  as sim::create_machine.
Result<std::filesystem::path> make_simulated_machine(const std::filesystem::path& folder,
                                                     const std::string& spec);

/// Whether `folder` is the simulated machine of `spec`.
bool is_simulated_machine(const std::filesystem::path& folder, const std::string& spec);

/// Takes it away. Running programs keep what they have mapped. Errors  kNotFound: no machine there.
Result<void> remove_simulated_machine(const std::filesystem::path& folder);

}  // namespace gpumem
