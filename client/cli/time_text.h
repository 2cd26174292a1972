#pragma once
#include <chrono>
#include <string>

#include "gpumem/result.h"

namespace gpumem::cli {

using WallTime = std::chrono::system_clock::time_point;

/// `since` as the broker takes it: RFC 3339, or how long ago before `now`: `90s`, `10m`, `2h`, `3d`.
/// Errors  kInvalidArgument: neither.
Result<std::string> since_text(const std::string& since, WallTime now);

/// A span of time in its two largest units: `3d 4h`, `12m 5s`; under ten seconds `1.5s`, under one `20ms`.
std::string span_text(std::chrono::milliseconds span);

/// How long ago `text` was at `now`, in its two largest units: `3d 4h`, `12m 5s`. Empty if unknown.
std::string age_text(const std::string& text, WallTime now);

}  // namespace gpumem::cli
