#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "client/cli/top/line.h"
#include "client/cli/top/picture.h"
#include "client/cli/top/rows.h"

// The screen as lines. Nothing here knows a terminal.

namespace gpumem::cli::top {

struct View {
  static constexpr std::size_t kUnbounded = std::string::npos;

  std::size_t width = 80;
  std::size_t height = kUnbounded;  ///< lines; unbounded: all rows, without a line of keys
  bool is_ascii = false;
  bool shows_help = false;
  std::size_t selected = 0;  ///< row
  std::size_t first = 0;     ///< row that is shown first
  std::string prompt{};      ///< being typed, or a question; in place of the line of keys
  std::string message{};     ///< likewise, of what has happened
  RowChoice choice{};
};

/// Rows for which the screen has room.
std::size_t room_for_rows(const Picture& picture, const View& view, const Moment& now);

/// At most `view.height` lines of at most `view.width` cells.
std::vector<Line> draw(const Picture& picture, const std::vector<Row>& rows, const View& view,
                       const Moment& now);

// The parts of the screen.
std::vector<Line> draw_devices(const Picture& picture, const View& view);
std::vector<Line> draw_rows(const std::vector<Row>& rows, const View& view, std::size_t room);
/// Requests that wait, with their reasons, and sessions that are quiet.
std::vector<Line> draw_notes(const Picture& picture, const View& view, const Moment& now);
std::vector<Line> draw_help(const View& view);

/// `1.5G`, `24G`, `512M`, `0`: five cells at most, in binary units.
std::string short_size(std::uint64_t bytes);
/// `45s`, `12m`, `3h`, `9d`.
std::string short_time(std::chrono::seconds time);

}  // namespace gpumem::cli::top
