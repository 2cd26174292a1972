#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/number.h"
#include "gpumem/bytes.h"

namespace gpumem {

/// The figure `name` of `text`, which is that of /proc/meminfo. Nothing: it is not there.
inline std::optional<Bytes> meminfo_figure(std::string_view text, std::string_view name) {
  const std::string begin = std::string(name) + ":";
  while (!text.empty() && !text.starts_with(begin))
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  if (text.empty()) return std::nullopt;
  text.remove_prefix(begin.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto kibibytes = whole_number<std::uint64_t>(text.substr(0, text.find(' ')));
  return kibibytes ? std::optional(Bytes{*kibibytes << 10}) : std::nullopt;
}

}  // namespace gpumem
