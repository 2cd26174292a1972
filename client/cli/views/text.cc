#include "client/cli/views/text.h"

#include <algorithm>

namespace gpumem::cli {
namespace {

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
  std::string field = "\"";
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

Result<std::string> since_text(const std::string& since, WallTime now) {
  if (parse_rfc3339(since)) return since;
  const auto ago = parse_duration(since);
  if (!ago) {
    return Error{Code::kInvalidArgument, "'" + since +
                                             "' is neither an instant of RFC 3339 (2030-01-02T12:00:00Z) nor "
                                             "a time up to now (500ms, 90s, 10m, 2h, 3d)"};
  }
  return to_rfc3339(now - *ago, Precision::kMicroseconds);
}

}  // namespace gpumem::cli
