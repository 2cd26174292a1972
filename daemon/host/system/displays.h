#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace gpumem::host {

/// Where the kernel shows graphics cards and their connectors.
inline constexpr const char* kGraphicsCards = "/sys/class/drm";

/// The PCI addresses (`0000:01:00.0`) of the graphics cards in `folder` to which a display is connected. What
/// cannot be read counts as not connected. Blocks: as /sys does.
std::set<std::string> cards_with_display(const std::filesystem::path& folder);

}  // namespace gpumem::host
