#pragma once
#include <filesystem>
#include <string>

namespace gpumem::cli {

/// `gpumem regions`: those that the caller may see. `owner`  only of this tenant; empty: of all. Answers the
/// exit status.
int list_regions(const std::filesystem::path& runtime_folder, const std::string& owner, bool json);

/// `gpumem regions rm`: ends one. `owner`  its tenant, for administrators; empty: the caller's. `version`  0:
/// the newest. Answers the exit status.
int remove_region(const std::filesystem::path& runtime_folder, const std::string& owner,
                  const std::string& name, std::uint64_t version);

}  // namespace gpumem::cli
