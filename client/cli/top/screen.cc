#include "client/cli/top/screen.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <set>

#include "base/text/printable.h"

namespace gpumem::cli::top {
namespace {

const char* const kKeys = "q quit  h help  s sort  f filter  / search  t tree  space fold  k end a process";

Line title_line(const Picture& picture, const View& view) {
  std::set<std::uint32_t> users;
  for (const auto& [id, session] : picture.sessions()) users.insert(session.info.uid());
  std::uint64_t waiting = 0;
  for (const v1::DeviceSample& device : picture.devices()) waiting += device.status().waiting();
  Line line{{"gpumem top", Tone::kTitle}};
  line.push_back({"  " + picture.time().substr(0, 19) + "Z  " +
                  counted(picture.sessions().size(), "session") + " of " + counted(users.size(), "user")});
  if (waiting != 0) line.push_back({"  " + std::to_string(waiting) + " waiting", Tone::kAlarm});
  line.push_back(
      {std::string("  by ") + kSortNames[static_cast<std::size_t>(view.choice.sort)], Tone::kFaint});
  if (!view.choice.filter.empty())
    line.push_back({"  only '" + escape_non_ascii(view.choice.filter) + "'", Tone::kWarning});
  return line;
}

Line last_line(const View& view) {
  if (!view.prompt.empty()) return {{view.prompt, Tone::kTitle}};
  if (!view.message.empty()) return {{view.message, Tone::kWarning}};
  return {{kKeys, Tone::kFaint}};
}

void append(std::vector<Line>& lines, std::vector<Line> more) {
  std::ranges::move(more, std::back_inserter(lines));
}

std::vector<Line> notes_for(const Picture& picture, const View& view, const Moment& now) {
  std::vector<Line> notes = draw_notes(picture, view, now);
  constexpr std::size_t kShare = 4;  // of the height
  if (view.height != View::kUnbounded) notes.resize(std::min(notes.size(), view.height / kShare));
  return notes;
}

}  // namespace

std::string short_size(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits{"B", "K", "M", "G", "T", "P", "E"};
  if (bytes == 0) return "0";
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 999.5 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  std::array<char, 32> text{};
  const bool is_whole = amount >= 99.95 || amount == static_cast<double>(static_cast<std::uint64_t>(amount));
  std::snprintf(text.data(), text.size(), is_whole ? "%.0f%s" : "%.1f%s", amount, kUnits[unit]);
  return text.data();
}

std::string short_time(std::chrono::seconds time) {
  const auto count = time.count();
  constexpr std::int64_t kMinute = 60, kHour = 3600, kDay = 86'400;
  if (count < kMinute) return std::to_string(count) + "s";
  if (count < kHour) return std::to_string(count / kMinute) + "m";
  if (count < 2 * kDay) return std::to_string(count / kHour) + "h";
  return std::to_string(count / kDay) + "d";
}

std::size_t room_for_rows(const Picture& picture, const View& view, const Moment& now) {
  if (view.height == View::kUnbounded) return View::kUnbounded;
  const std::size_t taken = 3 + draw_devices(picture, view).size() + notes_for(picture, view, now).size();
  return view.height > taken ? view.height - taken : 0;
}

std::vector<Line> draw(const Picture& picture, const std::vector<Row>& rows, const View& view,
                       const Moment& now) {
  std::vector<Line> lines;
  const bool is_bounded = view.height != View::kUnbounded;
  if (picture.is_empty()) {
    lines.push_back({{"waiting for the broker's first sample"}});
  } else if (view.shows_help) {
    lines = draw_help(view);
  } else {
    lines.push_back(title_line(picture, view));
    append(lines, draw_devices(picture, view));
    append(lines, draw_rows(rows, view, room_for_rows(picture, view, now)));
    append(lines, notes_for(picture, view, now));
  }
  if (is_bounded) {
    lines.resize(view.height == 0 ? 0 : view.height - 1);
    if (view.height != 0) lines.push_back(last_line(view));
  }
  for (Line& line : lines) line = fitted(std::move(line), view.width);
  return lines;
}

std::vector<Line> draw_help(const View& view) {
  const Glyphs& glyphs = view.is_ascii ? Glyphs::ascii() : Glyphs::unicode();
  std::vector<Line> lines{{{"gpumem top: who has the memory of this machine's GPUs", Tone::kTitle}}, {}};
  const auto add = [&](const std::string& key, const std::string& words) {
    lines.push_back({{left(key, 14), Tone::kTitle}, {words}});
  };
  add("q", "quit");
  add("h ?", "this help, and back");
  add("up down", "select a row; also page up, page down, home, end");
  add("space enter", "fold what is below the row, or unfold it");
  add("s S", "sort by the next, the previous: charged, in-use, peak, asked, waiting, age, quiet, name");
  add("f", "show only rows with certain words; nothing shows all");
  add("/ n", "search for words; the next row with them");
  add("t", "tree, or processes alone");
  add("a", "tenants that have nothing, too");
  add("k", "end the selected process, if it is yours; else the command for it");
  add("escape", "no filter, no message");
  lines.emplace_back();
  lines.push_back({{"bar  "},
                   {glyphs.lent, Tone::kLent},
                   {" lent  "},
                   {glyphs.idle, Tone::kIdle},
                   {" idle in the pool  "},
                   {glyphs.contexts, Tone::kContexts},
                   {" contexts  "},
                   {glyphs.unmanaged, Tone::kUnmanaged},
                   {" unmanaged  "},
                   {glyphs.free},
                   {" free"}});
  lines.push_back(
      {{"CHARGED is what counts against limits. IN USE and PEAK are what programs tell; nobody checks it."}});
  lines.push_back({{"ASKED is asked back. WAITS is asked for and not granted, and for how long."}});
  lines.push_back({{"QUIET is how long nothing about the process has changed, since this program began."}});
  lines.push_back({{"Sizes are in binary units: 1.5G is 1.5GiB."}});
  return lines;
}

}  // namespace gpumem::cli::top
