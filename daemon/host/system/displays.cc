#include "daemon/host/system/displays.h"

#include "base/system/files.h"

namespace gpumem::host {

// A connector is a folder such as card0-DP-1, with the file `status`. The link card0/device names the card.
std::set<std::string> cards_with_display(const std::filesystem::path& folder) {
  std::set<std::string> addresses;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename();
    const std::size_t end = name.find('-');
    if (!name.starts_with("card") || end == name.npos) continue;
    const auto status = read_text(entry.path() / "status");
    if (!status || !status->starts_with("connected")) continue;
    const auto device = std::filesystem::read_symlink(folder / name.substr(0, end) / "device", unreadable);
    if (!unreadable) addresses.insert(device.filename());
  }
  return addresses;
}

}  // namespace gpumem::host
