#include "client/cli/views/text.h"

#include <algorithm>
#include <array>

namespace gpumem::cli {
namespace {

// As std::chrono::weekday counts.
constexpr std::array<std::string_view, 7> kWeekdays{"sunday",   "monday", "tuesday", "wednesday",
                                                    "thursday", "friday", "saturday"};

bool is_control(std::string_view text, std::size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte < 0x20 || byte == 0x7F) return true;
  const bool second_set = byte == 0xC2 && i + 1 < text.size();  // U+0080 to U+009F
  return second_set && static_cast<unsigned char>(text[i + 1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool control = is_control(text, i);
    if (control && text[i] == '\xC2') ++i;
    shown += control ? '?' : text[i];
  }
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    shown += printable(text.substr(0, end)) + "\n";
  return shown + printable(text);
}

std::string csv_text(std::string_view text) {
  constexpr std::string_view kBeginFormulas = "=+-@\t\r";
  std::string field = "\"";
  if (!text.empty() && kBeginFormulas.find(text.front()) != text.npos) field += '\'';
  for (const char letter : text) field += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return field + '"';
}

std::string age_text(const std::string& text, WallTime now) {
  using std::chrono::seconds;
  const auto then = parse_rfc3339(text);
  if (!then) return {};
  const seconds age = std::max(seconds(0), std::chrono::floor<seconds>(now - *then));
  return age < seconds(10) ? std::to_string(age.count()) + "s" : span_text(age);
}

Result<WallTime> instant_of(const std::string& text, WallTime now) {
  using std::chrono::days;
  const auto today = std::chrono::floor<days>(now);
  if (text == "today") return WallTime(today);
  if (text == "yesterday") return WallTime(today - days(1));
  if (const auto day = std::ranges::find(kWeekdays, text); day != kWeekdays.end()) {
    const std::chrono::weekday named(static_cast<unsigned>(day - kWeekdays.begin()));
    return WallTime(today - (std::chrono::weekday(today) - named));
  }
  if (const auto instant = parse_rfc3339(text)) return *instant;
  if (const auto date = parse_rfc3339(text + "T00:00:00Z")) return *date;
  if (const auto ago = parse_duration(text)) return now - *ago;
  return Error{Code::kInvalidArgument,
               "'" + text +
                   "' is no time: give a date (2026-11-01), RFC 3339, today, yesterday, "
                   "a day of the week (monday), or how long ago (90m, 12h, 7d)"};
}

}  // namespace gpumem::cli
