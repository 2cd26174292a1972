#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "gpumem/result.h"

namespace gpumem {

/// Reads a span of time: `500ms`, `90s`, `10m`, `2h`, `3d`; a number alone is seconds.
/// Errors  kInvalidArgument: something else, or over a year.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);

/// A span of time in its two largest units: `3d 4h`, `12m 5s`; under ten seconds `1.5s`, under one `20ms`.
std::string span_text(std::chrono::milliseconds span);

/// The instant that RFC 3339 `text` names, to the microsecond; nothing if it names none, or one before 1970
/// or after 2199.
std::optional<std::chrono::system_clock::time_point> parse_rfc3339(std::string_view text);

enum class Precision { kSeconds, kMicroseconds };

/// `time` in UTC: `2030-01-02T12:00:00Z`, `2030-01-02T12:00:00.123456Z`.
std::string to_rfc3339(std::chrono::system_clock::time_point time, Precision precision);

}  // namespace gpumem
