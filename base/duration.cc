#include "base/duration.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace gpumem {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongest = std::chrono::hours(366 * 24);

struct Unit {
  std::string_view name;
  milliseconds length;
};
constexpr std::array<Unit, 6> kUnits{{{"ms", milliseconds(1)},
                                      {"s", std::chrono::seconds(1)},
                                      {"", std::chrono::seconds(1)},
                                      {"m", std::chrono::minutes(1)},
                                      {"h", std::chrono::hours(1)},
                                      {"d", std::chrono::hours(24)}}};

}  // namespace

Result<milliseconds> parse_duration(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& known : kUnits) {
    if (failed != std::errc() || number < 0 || unit != known.name) continue;
    if (number <= kLongest / known.length) return number * known.length;
  }
  return Error{Code::kInvalidArgument,
               "'" + std::string(text) + "' is no span of time (500ms, 90s, 10m, 2h, 3d)"};
}

}  // namespace gpumem
