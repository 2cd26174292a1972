#pragma once
#include <chrono>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem {

/// Reads a span of time: `500ms`, `90s`, `10m`, `2h`, `3d`; a number alone is seconds.
/// Errors  kInvalidArgument: something else, or over a year.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

}  // namespace gpumem
