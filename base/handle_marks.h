#pragma once
#include <string_view>

namespace gpumem {

// What the broker's IPC handles begin with; the rest of their 64 bytes is random. Whoever finds one knows
// what it is.

/// Of a range of a session's memory.
inline constexpr std::string_view kHandleMark = "GPUMEMH1";
/// Of a region, which is mapped for reading.
inline constexpr std::string_view kRegionHandleMark = "GPUMEMR1";

}  // namespace gpumem
