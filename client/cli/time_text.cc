#include "client/cli/time_text.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace gpumem::cli {

std::optional<WallTime> parse_rfc3339(const std::string& text) {
  std::tm parts{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.') {
    do {
      ++rest;
    } while (*rest >= '0' && *rest <= '9');
  }
  int hours = 0;
  int minutes = 0;
  char sign = '+';
  const bool offset =
      std::sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) == 3 && (sign == '+' || sign == '-');
  if (!offset && std::string(rest) != "Z") return std::nullopt;
  const std::chrono::minutes east((sign == '-' ? -1 : 1) * (hours * 60 + minutes));
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) - (offset ? east : std::chrono::minutes(0));
}

std::string age_text(const std::string& text, WallTime now) {
  const auto then = parse_rfc3339(text);
  if (!then) return {};
  const auto seconds = std::max<long long>(0, std::chrono::floor<std::chrono::seconds>(now - *then).count());
  struct Unit {
    char letter;
    long long seconds;
  };
  constexpr std::array<Unit, 4> kUnits{{{'d', 86'400}, {'h', 3'600}, {'m', 60}, {'s', 1}}};
  for (std::size_t i = 0; i + 1 < kUnits.size(); ++i) {
    if (seconds < kUnits[i].seconds) continue;
    const long long smaller = seconds % kUnits[i].seconds / kUnits[i + 1].seconds;
    return std::to_string(seconds / kUnits[i].seconds) + kUnits[i].letter + " " + std::to_string(smaller) +
           kUnits[i + 1].letter;
  }
  return std::to_string(seconds) + "s";
}

}  // namespace gpumem::cli
