#include "base/text/time_format.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <iterator>
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

using std::chrono::microseconds;
using std::chrono::system_clock;

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

// Takes characters off the front of `text`; once something was not as expected, all else fails too.
struct Reader {
  std::string_view text;
  bool good = true;

  int number(std::size_t digits) {
    int value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      good = good && i < text.size() && is_digit(text[i]);
      if (good) value = value * 10 + (text[i] - '0');
    }
    if (good) text.remove_prefix(digits);
    return value;
  }
  void expect(char letter) {
    good = good && !text.empty() && text.front() == letter;
    if (good) text.remove_prefix(1);
  }
  bool next_is(char letter) const { return good && !text.empty() && text.front() == letter; }

  microseconds fraction() {
    if (!next_is('.')) return {};
    text.remove_prefix(1);
    good = !text.empty() && is_digit(text.front());
    std::int64_t value = 0;
    std::int64_t unit = 100'000;
    for (; good && !text.empty() && is_digit(text.front()); text.remove_prefix(1), unit /= 10)
      value += unit * (text.front() - '0');
    return microseconds(value);
  }
  std::chrono::minutes offset() {
    if (next_is('Z')) {
      text.remove_prefix(1);
      return {};
    }
    const bool west = next_is('-');
    expect(west ? '-' : '+');
    const int hours = number(2);
    expect(':');
    const int minutes = number(2);
    good = good && hours < 24 && minutes < 60;
    return std::chrono::minutes((west ? -1 : 1) * (hours * 60 + minutes));
  }
};

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

std::string span_text(milliseconds span) {
  using std::chrono::seconds;
  if (span < seconds(1)) return std::to_string(span.count()) + "ms";
  if (span < seconds(10)) {
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "%.1fs", std::chrono::duration<double>(span).count());
    return text.data();
  }
  for (auto unit = kUnits.rbegin(); unit->length > seconds(1); ++unit) {
    if (span < unit->length) continue;
    const Unit& smaller = unit->length == std::chrono::minutes(1) ? kUnits[1] : *std::next(unit);
    return std::to_string(span / unit->length) + std::string(unit->name) + " " +
           std::to_string(span % unit->length / smaller.length) + std::string(smaller.name);
  }
  return std::to_string(span / seconds(1)) + "s";
}

std::optional<system_clock::time_point> parse_rfc3339(std::string_view text) {
  Reader reader{text};
  const int year = reader.number(4);
  reader.expect('-');
  const int month = reader.number(2);
  reader.expect('-');
  const int day = reader.number(2);
  reader.expect('T');
  const int hour = reader.number(2);
  reader.expect(':');
  const int minute = reader.number(2);
  reader.expect(':');
  const int second = reader.number(2);
  const microseconds fraction = reader.fraction();
  const std::chrono::minutes east = reader.offset();
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!reader.good || !reader.text.empty() || year < 1970 || year > 2199 || !date.ok() || hour > 23 ||
      minute > 59 || second > 60) {
    return std::nullopt;
  }
  return system_clock::time_point(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) + fraction - east;
}

std::string to_rfc3339(system_clock::time_point time, Precision precision) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t seconds = system_clock::to_time_t(whole);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (precision == Precision::kSeconds) return std::string(text.data()) + "Z";
  std::array<char, 16> fraction{};
  const auto rest = std::chrono::floor<microseconds>(time - whole).count();
  std::snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>(rest));
  return std::string(text.data()) + fraction.data();
}

}  // namespace gpumem
