#pragma once
#include <string_view>

namespace gpumem {

// The first bytes of the broker's IPC handles, by which a handle is recognised; the rest of the 64 bytes is
// random.

/// Of a range of a session's memory.
inline constexpr std::string_view kHandleMark = "GPUMEMH1";
/// Of a region, which is mapped for reading.
inline constexpr std::string_view kRegionHandleMark = "GPUMEMR1";

}  // namespace gpumem
