#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text/time_format.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

// Text for people: what terminals may show, sizes and times.

namespace gpumem::cli {

/// `text` as it may be shown on a terminal: control characters, which could be escape sequences of whoever
/// chose a label, become `?`.
std::string printable(std::string_view text);

/// Makes text of several lines printable. Line breaks stay.
std::string printable_lines(std::string_view text);

/// `text` as one field of comma-separated values, quoted.
std::string csv_text(std::string_view text);

/// The least that can be borrowed or given back: as devices allocate.
inline constexpr Bytes kLeastBytes = mebibytes(2);

/// An amount of bytes as the wire has it, for people.
inline std::string size_text(std::uint64_t bytes) { return to_string(Bytes{bytes}); }

/// `2 sessions`, `1 session`.
inline std::string counted(std::size_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

using WallTime = std::chrono::system_clock::time_point;

/// The instant that `text` names, before `now`: RFC 3339, a date, today, yesterday, the last day of a name
/// (monday), or how long ago, as parse_duration() reads it. Days begin at midnight UTC.
/// Errors  kInvalidArgument: something else.
Result<WallTime> instant_of(const std::string& text, WallTime now);

/// How long ago `text` was at `now`, in its two largest units: `3d 4h`, `12m 5s`. Empty if unknown.
std::string age_text(const std::string& text, WallTime now);

}  // namespace gpumem::cli
