#include "sim/machine/device_model.h"

#include <charconv>
#include <cstdio>

#include "sim/machine/machine.h"

namespace gpumem::sim::device_model {
namespace {

std::optional<std::uint32_t> hexadecimal(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

/// Takes what follows the last `mark` off `text`; `0` if there is none.
std::string_view take_last(std::string_view& text, char mark) {
  const std::size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return "0";
  const std::string_view part = text.substr(at + 1);
  text = text.substr(0, at);
  return part;
}

}  // namespace

std::string pci_bus_id(std::uint32_t index, int domain_digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*x:%02x:00.0", domain_digits, 0, pci_bus(index));
  return text;
}

std::optional<std::uint32_t> device_at(std::string_view id) {
  if (id.find(':') == std::string_view::npos) return std::nullopt;
  const auto function = hexadecimal(take_last(id, '.'));
  const auto device = hexadecimal(take_last(id, ':'));
  const bool has_domain = id.find(':') != std::string_view::npos;
  const auto bus = hexadecimal(has_domain ? take_last(id, ':') : id);
  const auto domain = has_domain ? hexadecimal(id) : 0;
  if (function != 0U || device != 0U || domain != 0U || !bus) return std::nullopt;
  if (*bus < pci_bus(0) || *bus >= pci_bus(kMaxDevices)) return std::nullopt;
  return *bus - pci_bus(0);
}

}  // namespace gpumem::sim::device_model
