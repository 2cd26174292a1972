#pragma once
#include <chrono>
#include <cstdint>
#include <ratio>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem::sim {

/// Fine enough for the time that one MiB takes.
using Picoseconds = std::chrono::duration<std::int64_t, std::pico>;

/// Reads `5ms`, `1.5us`, `218.4ns`, `0s`; what is below a picosecond is dropped.
/// Errors  kInvalidArgument: no number, no or an unknown unit, negative, over one day.
Result<Picoseconds> parse_time(std::string_view text);

/// The text that parse_time reads as exactly this, in the largest unit that leaves a whole part.
std::string to_string(Picoseconds time);

/// Waits so long; nothing if not positive. Sleeps for most of it and spins at the end, so that it is late
/// only when the system gives the thread no processor. Blocks.
void spend(std::chrono::nanoseconds time);

}  // namespace gpumem::sim
