#include "client/cli/time_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

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
  std::int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, count);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  std::int64_t milliseconds = unit == "ms" ? 1 : unit.empty() ? 1000 : 0;
  for (const Unit& one : kUnits) {
    if (unit == std::string_view(&one.letter, 1)) milliseconds = one.seconds * 1000;
  }
  constexpr std::int64_t kLongest = 366LL * 86'400'000;
  if (failed != std::errc() || milliseconds == 0 || count < 0 || count > kLongest / milliseconds)
    return Error{Code::kInvalidArgument, "'" + text + "' is no span of time (500ms, 90s, 10m, 2h, 3d)"};
  return std::chrono::milliseconds(count * milliseconds);
}

Result<std::string> since_text(const std::string& since, WallTime now) {
  if (parse_rfc3339(since)) return since;
  std::int64_t count = 0;
  const auto [rest, failed] = std::from_chars(since.data(), since.data() + since.size(), count);
  const std::string_view unit(rest, static_cast<std::size_t>(since.data() + since.size() - rest));
  const auto* known = std::find_if(kUnits.begin(), kUnits.end(),
                                   [&](const Unit& one) { return unit == std::string_view(&one.letter, 1); });
  constexpr std::int64_t kLongest = 366LL * 86'400;
  if (failed != std::errc() || known == kUnits.end() || count < 0 || count > kLongest / known->seconds) {
    return Error{Code::kInvalidArgument, "'" + since +
                                             "' is neither an instant of RFC 3339 (2030-01-02T12:00:00Z) nor "
                                             "a time up to now (90s, 10m, 2h, 3d)"};
  }
  return to_rfc3339(now - std::chrono::seconds(count * known->seconds), Precision::kMicroseconds);
}

}  // namespace gpumem::cli
