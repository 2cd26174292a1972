#include "client/cli/lent_devices.h"

#include <charconv>

namespace gpumem::cli {

Result<std::string> find_device(const v1::GetStatusResponse& status, const std::string& text) {
  std::string all;
  std::string found;
  int matches = 0;
  int place = -1;
  const char* end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, place);
  const bool is_place = failed == std::errc() && rest == end;
  for (int i = 0; i < status.devices_size(); ++i) {
    const std::string& uuid = status.devices(i).uuid();
    const std::string& name = status.devices(i).name();
    all += "\n  " + std::to_string(i) + ": " + uuid + (name.empty() ? "" : " " + name);
    if (is_place ? i != place : text.empty() || !uuid.starts_with(text)) continue;
    found = uuid;
    ++matches;
  }
  if (matches == 1) return found;
  return Error{Code::kNotFound, "the broker lends " +
                                    std::string(matches == 0 ? "no device '" : "several devices '") + text +
                                    (all.empty() ? "', nor any other" : "', but these:" + all)};
}

Result<std::string> first_visible(const v1::GetStatusResponse& status, const std::string& visible) {
  for (std::size_t begin = 0; begin < visible.size();) {
    const std::size_t end = std::min(visible.find(',', begin), visible.size());
    if (auto found = find_device(status, visible.substr(begin, end - begin))) return found;
    begin = end + 1;
  }
  return find_device(status, "0");
}

}  // namespace gpumem::cli
