#include "sim/driver/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string>

namespace gpumem::sim {
namespace {

std::optional<std::uint32_t> by_uuid(std::string_view text, const Table& table) {
  std::optional<std::uint32_t> found;
  for (std::uint32_t i = 0; i < table.device_count(); ++i) {
    if (!to_string(table.uuid(i)).starts_with(text)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::optional<std::uint32_t> by_name(std::string_view text, const Table& table) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(' ') - first + 1);
  if (text.starts_with("GPU-")) return by_uuid(text, table);
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && index < table.device_count() ? std::optional(index) : std::nullopt;
}

}  // namespace

std::vector<std::uint32_t> visible_devices(const char* list, const Table& table) {
  std::vector<std::uint32_t> visible;
  if (list == nullptr) {
    visible.resize(table.device_count());
    std::iota(visible.begin(), visible.end(), 0U);
    return visible;
  }
  for (std::string_view rest = list;;) {
    const auto comma = rest.find(',');
    const auto device = by_name(rest.substr(0, comma), table);
    if (!device) return visible;
    if (std::find(visible.begin(), visible.end(), *device) != visible.end()) return {};
    visible.push_back(*device);
    if (comma == std::string_view::npos) return visible;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace gpumem::sim
