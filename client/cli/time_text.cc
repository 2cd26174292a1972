#include "client/cli/time_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/rfc3339.h"

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

// Zero: no unit.
std::int64_t milliseconds_of(std::string_view unit) {
  const auto* known = std::find_if(kUnits.begin(), kUnits.end(),
                                   [&](const Unit& one) { return unit == std::string_view(&one.letter, 1); });
  return known == kUnits.end() ? 0 : known->seconds * 1000;
}

// A count of the units that `milliseconds_in` knows, a year at most. Nothing: it is none.
template <class MillisecondsOf>
std::optional<std::chrono::milliseconds> parse_counted(std::string_view text,
                                                       const MillisecondsOf& milliseconds_in) {
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, count);
  const std::int64_t each = milliseconds_in(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  constexpr std::int64_t kLongest = 366LL * 86'400'000;
  if (failed != std::errc() || each == 0 || count < 0 || count > kLongest / each) return std::nullopt;
  return std::chrono::milliseconds(count * each);
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

Result<std::chrono::milliseconds> parse_span(const std::string& text) {
  const auto span = parse_counted(text, [](std::string_view unit) {
    return unit == "ms" ? std::int64_t{1} : milliseconds_of(unit.empty() ? "s" : unit);
  });
  if (span) return *span;
  return Error{Code::kInvalidArgument, "'" + text + "' is no span of time (500ms, 90s, 10m, 2h, 3d)"};
}

Result<std::string> since_text(const std::string& since, WallTime now) {
  if (parse_rfc3339(since)) return since;
  const auto ago = parse_counted(since, milliseconds_of);
  if (!ago) {
    return Error{Code::kInvalidArgument, "'" + since +
                                             "' is neither an instant of RFC 3339 (2030-01-02T12:00:00Z) nor "
                                             "a time up to now (90s, 10m, 2h, 3d)"};
  }
  return to_rfc3339(now - *ago, Precision::kMicroseconds);
}

}  // namespace gpumem::cli
