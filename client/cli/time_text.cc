#include "client/cli/time_text.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/time_format.h"

namespace gpumem::cli {
namespace {

struct Unit {
  char letter;
  std::int64_t seconds;
};
constexpr std::array<Unit, 4> kUnits{{{'d', 86'400}, {'h', 3'600}, {'m', 60}, {'s', 1}}};

std::string whole_units(std::int64_t seconds) {
  for (std::size_t i = 0; i + 1 < kUnits.size(); ++i) {
    if (seconds < kUnits[i].seconds) continue;
    const auto smaller = seconds % kUnits[i].seconds / kUnits[i + 1].seconds;
    return std::to_string(seconds / kUnits[i].seconds) + kUnits[i].letter + " " + std::to_string(smaller) +
           kUnits[i + 1].letter;
  }
  return std::to_string(seconds) + "s";
}

}  // namespace

std::string age_text(const std::string& text, WallTime now) {
  const auto then = parse_rfc3339(text);
  if (!then) return {};
  return whole_units(
      std::max<std::int64_t>(0, std::chrono::floor<std::chrono::seconds>(now - *then).count()));
}

std::string span_text(std::chrono::milliseconds span) {
  if (span < std::chrono::seconds(1)) return std::to_string(span.count()) + "ms";
  if (span >= std::chrono::seconds(10))
    return whole_units(std::chrono::floor<std::chrono::seconds>(span).count());
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.1fs", std::chrono::duration<double>(span).count());
  return text.data();
}

Result<std::string> since_text(const std::string& since, WallTime now) {
  if (parse_rfc3339(since)) return since;
  const bool has_unit = !since.empty() && std::ranges::any_of(kUnits, [&](const Unit& one) {
    return since.back() == one.letter;
  });
  const auto ago = parse_duration(since);
  if (!ago || !has_unit || since.ends_with("ms")) {
    return Error{Code::kInvalidArgument, "'" + since +
                                             "' is neither an instant of RFC 3339 (2030-01-02T12:00:00Z) nor "
                                             "a time up to now (90s, 10m, 2h, 3d)"};
  }
  return to_rfc3339(now - *ago, Precision::kMicroseconds);
}

}  // namespace gpumem::cli
