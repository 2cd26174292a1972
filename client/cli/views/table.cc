#include "client/cli/views/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "client/cli/views/names.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kGap = 2;
constexpr const char* kBold = "\033[1m";
constexpr const char* kYellow = "\033[33m";
constexpr const char* kPlain = "\033[0m";

// A byte that begins a letter: UTF-8's continuation bytes take no room.
bool begins_letter(char byte) { return (byte & 0xC0) != 0x80; }

std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_letter));
}

std::string cut(const std::string& text, std::size_t width) {
  if (letters(text) <= width) return text;
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size(); ++end)
    if (begins_letter(text[end]) && ++count == width) break;
  return text.substr(0, end) + "+";
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

std::size_t output_columns(bool is_terminal) {
  std::size_t columns = 0;
  if (const char* const wanted = std::getenv("COLUMNS"); wanted != nullptr) {
    const std::string_view text = wanted;
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  if (columns != 0) return columns;
  winsize size{};
  const bool is_known = is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0;
  return is_known ? size.ws_col : Layout::kUnbounded;
}

}  // namespace

Layout Layout::of_output(bool is_long) {
  Layout layout;
  layout.is_long = is_long;
  layout.is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const char* const term = std::getenv("TERM");
  const bool is_dumb = term == nullptr || std::string_view(term) == "dumb";
  layout.has_colour = layout.is_terminal && !is_dumb && !is_set("NO_COLOR");
  if (!is_long) layout.columns = output_columns(layout.is_terminal);
  return layout;
}

std::string Layout::device(const std::string& uuid) const {
  return is_long ? uuid : device_name(uuid, devices);
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

std::size_t Table::width_of(std::size_t column) const {
  std::size_t width = 0;
  for (const auto& line : lines_) width = std::max(width, letters(line[column]));
  return width;
}

std::size_t Table::least_of(std::size_t column) const {
  return std::max(columns_[column].least, columns_[column].title.size());
}

// Columns by their places, without those that are usual, and without those for which there is no room.
std::vector<std::size_t> Table::chosen(const Layout& layout) const {
  std::vector<std::size_t> chosen;
  std::size_t needed = 0;
  const auto room_of = [&](std::size_t i) {
    const std::size_t width = width_of(i);
    return (columns_[i].least != 0 ? std::min(width, least_of(i)) : width) + kGap;
  };
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto is_usual = [&](const auto& line) { return line[i] == columns_[i].usual || line[i] == "-"; };
    if (!layout.is_long && !columns_[i].usual.empty() &&
        std::all_of(lines_.begin() + 1, lines_.end(), is_usual))
      continue;
    chosen.push_back(i);
    needed += room_of(i);
  }
  while (layout.columns != Layout::kUnbounded && needed > layout.columns + kGap) {
    const auto last = std::ranges::max_element(chosen, {}, [&](std::size_t i) { return columns_[i].rank; });
    if (last == chosen.end() || columns_[*last].rank == 0) break;
    needed -= room_of(*last);
    chosen.erase(last);
  }
  return chosen;
}

std::string Table::text(const Layout& layout) const {
  const std::vector<std::size_t> chosen = this->chosen(layout);
  std::vector<std::size_t> widths(columns_.size());
  std::size_t total = 0;
  for (const std::size_t i : chosen) total += (widths[i] = width_of(i)) + kGap;
  for (; layout.columns != Layout::kUnbounded && total > layout.columns + kGap; --total) {
    const auto spare = [&](std::size_t i) {
      return columns_[i].least != 0 && widths[i] > least_of(i) ? widths[i] : 0;
    };
    const auto widest = std::ranges::max_element(chosen, {}, spare);
    if (widest == chosen.end() || spare(*widest) == 0) break;
    --widths[*widest];
  }
  std::string text;
  for (std::size_t line = 0; line < lines_.size(); ++line)
    text += line_text(line, chosen, widths, layout.has_colour);
  return text;
}

std::string Table::line_text(std::size_t line, const std::vector<std::size_t>& chosen,
                             const std::vector<std::size_t>& widths, bool has_colour) const {
  const bool is_title = line == 0;
  std::string text;
  for (const std::size_t i : chosen) {
    const Column& column = columns_[i];
    std::string cell = cut(lines_[line][i], widths[i]);
    const std::string gap(widths[i] - letters(cell), ' ');
    const bool stands_out = has_colour && !is_title && column.alerts && cell != column.usual && cell != "-";
    if (stands_out) cell = kYellow + cell + kPlain;
    text += text.empty() ? "" : std::string(kGap, ' ');
    text += column.align == Align::kRight ? gap + cell : cell + gap;
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return (has_colour && is_title ? kBold + text + kPlain : text) + "\n";
}

}  // namespace gpumem::cli
