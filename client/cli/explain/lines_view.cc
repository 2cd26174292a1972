#include <algorithm>

#include "client/cli/explain/explain.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kGap = 2;

struct Row {
  std::string name;
  std::string amount;
  std::string moved;
};

std::string exact_text(std::int64_t bytes) {
  const std::string digits = std::to_string(bytes);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t left = digits.size() - i;
    if (i != 0 && digits[i - 1] != '-' && left % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string cell(std::optional<std::int64_t> bytes, bool is_long) {
  return bytes && is_long ? exact_text(*bytes) : amount_text(bytes);
}

void add_rows(const Line& line, std::size_t depth, bool is_long, std::vector<Row>& rows) {
  const std::string moved = line.moved > 0   ? "+" + cell(line.moved, is_long)
                            : line.moved < 0 ? cell(line.moved, is_long)
                                             : "";
  rows.push_back({std::string(kGap * depth, ' ') + line.name, cell(line.bytes, is_long), moved});
  for (const Line& part : line.parts) add_rows(part, depth + 1, is_long, rows);
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() > width) text.replace(width - 1, std::string::npos, "+");
  text.resize(width, ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

std::string amount_text(std::optional<std::int64_t> bytes) {
  if (!bytes) return "not told";
  const auto count = static_cast<std::uint64_t>(*bytes);
  return *bytes < 0 ? "-" + size_text(0 - count) : size_text(count);
}

std::string lines_text(const std::vector<Line>& lines, const Layout& layout, bool with_moves) {
  std::vector<Row> rows;
  if (with_moves) rows.push_back({"", "", "MOVED"});
  for (const Line& line : lines) add_rows(line, 1, layout.is_long, rows);
  std::size_t name = 0, amount = 0, moved = 0;
  for (const Row& row : rows) {
    name = std::max(name, row.name.size());
    amount = std::max(amount, row.amount.size());
    moved = std::max(moved, row.moved.size());
  }
  const std::size_t others = kGap + amount + (with_moves ? kGap + moved : 0);
  const std::size_t width = std::max(std::min(layout.columns, kWidth), others + 20);
  if (!layout.is_long) name = std::min(name, width - others);
  std::string text;
  for (const Row& row : rows) {
    std::string one = padded(row.name, name) + std::string(kGap, ' ') + right(row.amount, amount);
    if (with_moves && !row.moved.empty()) one += std::string(kGap, ' ') + right(row.moved, moved);
    text += one.substr(0, one.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Json line_json(const Line& line) {
  Json parts = Json::array();
  for (const Line& part : line.parts) parts.push_back(line_json(part));
  return {{"key", line.key},     {"subject", line.subject.empty() ? Json() : Json(line.subject)},
          {"name", line.name},   {"bytes", line.bytes ? Json(*line.bytes) : Json()},
          {"moved", line.moved}, {"parts", std::move(parts)}};
}

std::string wrapped(const std::string& text) {
  std::string all;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column != 0) {
      const bool fits = column + 1 + word.size() <= kWidth;
      all += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    all += word;
    column += word.size();
    begin = end + 1;
  }
  return all + "\n";
}

}  // namespace gpumem::cli
