#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/text/printable.h"
#include "client/cli/top/screen.h"
#include "client/cli/views/names.h"
#include "client/cli/views/views.h"

namespace gpumem::cli::top {
namespace {

struct Column {
  const char* title;
  std::size_t width;
  int rank;  ///< where room lacks, the highest are left out first
  bool is_right;
  std::string (*text)(const Row& row);
};

// A job's number of ten digits below three tenants, and the beginning of its label.
constexpr std::size_t kLeastName = 26;
constexpr std::chrono::seconds kWorthTelling{60};

bool is_session(const Row& row) { return row.kind == Row::Kind::kSession; }
std::string size_or_nothing(std::uint64_t bytes) { return bytes == 0 ? "" : short_size(bytes); }

std::string waits_of(const Row& row) {
  if (row.waiting == 0 && row.requests == 0) return "";
  const std::string amount =
      row.waiting != 0 ? short_size(row.waiting) : std::to_string(row.requests) + " req";
  return row.waits ? amount + " " + short_time(std::chrono::duration_cast<std::chrono::seconds>(*row.waits))
                   : amount;
}

const std::array<Column, 11>& columns() {
  static const std::array<Column, 11> kColumns{{
      {"SESSION", 7, 4, true, [](const Row& row) { return is_session(row) ? std::to_string(row.id) : ""; }},
      {"PID", 7, 3, true, [](const Row& row) { return row.pid != 0 ? std::to_string(row.pid) : ""; }},
      {"USER", 10, 2, false, [](const Row& row) { return row.user; }},
      {"GPU", 5, 7, false, [](const Row& row) { return row.devices; }},
      {"CHARGED", 7, 0, true, [](const Row& row) { return short_size(row.charged); }},
      {"IN USE", 7, 1, true, [](const Row& row) { return short_size(row.in_use); }},
      {"PEAK", 7, 5, true, [](const Row& row) { return size_or_nothing(row.peak); }},
      {"ASKED", 7, 6, true, [](const Row& row) { return size_or_nothing(row.asked); }},
      {"WAITS", 10, 1, true, waits_of},
      {"AGE", 5, 8, true,
       [](const Row& row) { return row.kind == Row::Kind::kTenant ? "" : short_time(row.age); }},
      {"QUIET", 5, 9, true,
       [](const Row& row) {
         return is_session(row) && row.quiet >= kWorthTelling ? short_time(row.quiet) : "";
       }},
  }};
  return kColumns;
}

std::vector<const Column*> chosen_for(std::size_t width) {
  std::vector<const Column*> chosen;
  std::size_t needed = kLeastName;
  for (const Column& column : columns()) {
    chosen.push_back(&column);
    needed += column.width + 1;
  }
  while (needed > width && !chosen.empty()) {
    const auto last = std::ranges::max_element(chosen, {}, &Column::rank);
    if ((*last)->rank == 0) break;
    needed -= (*last)->width + 1;
    chosen.erase(last);
  }
  return chosen;
}

std::size_t name_width(const std::vector<const Column*>& chosen, std::size_t width) {
  std::size_t others = 0;
  for (const Column* column : chosen) others += column->width + 1;
  return width > others ? width - others : 0;
}

std::string tree_text(const Row& row, const Glyphs& glyphs) {
  std::string text;
  for (std::size_t level = 1; level < row.more.size(); ++level) {
    const bool is_own = level + 1 == row.more.size();
    if (is_own)
      text += row.more[level] ? glyphs.branch : glyphs.last_branch;
    else
      text += row.more[level] ? glyphs.trunk : glyphs.gap;
  }
  return text;
}

Tone tone_of(const Row& row) {
  if (row.waiting != 0 || row.requests != 0) return Tone::kAlarm;
  if (row.asked != 0) return Tone::kWarning;
  if (!row.state.empty()) return Tone::kFaint;
  return is_session(row) ? Tone::kPlain : Tone::kTitle;
}

Line line_of(const Row& row, const std::vector<const Column*>& chosen, const View& view) {
  const Glyphs& glyphs = view.is_ascii ? Glyphs::ascii() : Glyphs::unicode();
  const std::string fold = row.is_folded ? "+ " : "";
  const std::string name =
      tree_text(row, glyphs) + fold + row.name + (row.state.empty() ? "" : " (" + row.state + ")");
  std::string cells = left(name, name_width(chosen, view.width));
  for (const Column* column : chosen) {
    const std::string cell = column->text(row);
    cells += " " + (column->is_right ? right(cell, column->width) : left(cell, column->width));
  }
  return {{std::move(cells), tone_of(row)}};
}

std::string device_of(const Picture& picture, const std::string& uuid) {
  return device_name(uuid, picture.device_uuids());
}

Line waiting_line(const v1::Denial& denial, const Picture& picture) {
  const auto waited = std::chrono::milliseconds(denial.waited_ms());
  return {{"waits ", Tone::kAlarm},
          {escape_non_ascii(tenant_text(denial.tenant())) + ", session " + std::to_string(denial.session()) +
           ": " + short_size(denial.asked()) + " on " + device_of(picture, denial.device()) + " for " +
           short_time(std::chrono::duration_cast<std::chrono::seconds>(waited)) + ": " +
           escape_non_ascii(obstacle_words(denial))}};
}

Line quiet_line(const Row& row) {
  return {{"quiet ", Tone::kWarning},
          {row.name + ", session " + std::to_string(row.id) + " of " + row.user + ": " +
           short_size(row.charged) + ", unchanged for " + short_time(row.quiet)}};
}

}  // namespace

std::vector<Line> draw_rows(const std::vector<Row>& rows, const View& view, std::size_t room) {
  const std::vector<const Column*> chosen = chosen_for(view.width);
  std::string titles = left("NAME", name_width(chosen, view.width));
  for (const Column* column : chosen)
    titles +=
        " " + (column->is_right ? right(column->title, column->width) : left(column->title, column->width));
  std::vector<Line> lines{{{titles, Tone::kTitle}}};
  const std::size_t first = room == View::kUnbounded ? 0 : std::min(view.first, rows.size());
  const std::size_t count = std::min(room, rows.size() - first);
  for (std::size_t i = first; i < first + count; ++i) {
    Line line = line_of(rows[i], chosen, view);
    if (room != View::kUnbounded && i == view.selected) line[0].tone = Tone::kSelected;
    lines.push_back(std::move(line));
  }
  if (room != View::kUnbounded) lines.resize(1 + room);
  return lines;
}

std::vector<Line> draw_notes(const Picture& picture, const View& view, const Moment& now) {
  constexpr std::size_t kMostQuiet = 3;
  std::vector<Line> lines;
  for (const Row& row : quiet_sessions(picture, kMostQuiet, now)) lines.push_back(quiet_line(row));
  for (const v1::Denial& denial : picture.waiting()) {
    lines.push_back(waiting_line(denial, picture));
    // The reason goes on in a line of its own where it does not fit.
    Line& line = lines.back();
    if (cells(line) <= view.width || view.width <= 8) continue;
    const std::string text = text_of(line);
    const auto space = text.rfind(' ', view.width);
    const std::size_t end = space == std::string::npos || space < 8 ? view.width : space;
    const std::string rest = text.substr(text[end] == ' ' ? end + 1 : end);
    line[1].text = text.substr(line[0].text.size(), end - line[0].text.size());
    lines.push_back({{"      " + rest}});
  }
  return lines;
}

}  // namespace gpumem::cli::top
