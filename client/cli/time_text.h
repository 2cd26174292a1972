#pragma once
#include <chrono>
#include <optional>
#include <string>

namespace gpumem::cli {

using WallTime = std::chrono::system_clock::time_point;

/// The instant that RFC 3339 `text` names, without its fraction of a second; nothing if it names none.
std::optional<WallTime> parse_rfc3339(const std::string& text);

/// How long ago `text` was at `now`, in its two largest units: `3d 4h`, `12m 5s`. Empty if unknown.
std::string age_text(const std::string& text, WallTime now);

}  // namespace gpumem::cli
