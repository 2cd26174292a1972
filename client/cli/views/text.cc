#include "client/cli/views/text.h"

#include <algorithm>

namespace gpumem::cli {
namespace {

/// Letters, not bytes: UTF-8's continuation bytes take no room.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char letter) { return (letter & 0xC0) != 0x80; }));
}

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

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  lines_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = cell.empty() ? "-" : printable(cell);
  lines_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths(columns_.size());
  for (const auto& line : lines_) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width(line[i]));
  }
  std::string text;
  for (const auto& line : lines_) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string gap(widths[i] - width(line[i]), ' ');
      text += i == 0 ? "" : "  ";
      text += columns_[i].align == Align::kRight ? gap + line[i] : line[i] + gap;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
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
