#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "client/cli/top/controller.h"
#include "client/cli/top/line.h"

namespace gpumem::cli::top {

/// The terminal, by ncurses: it draws only the cells that have changed. One at a time.
class Terminal {
 public:
  /// Null: ncurses knows no terminal of the type in TERM.
  static std::unique_ptr<Terminal> open(bool has_colour);
  /// Leaves the terminal as it was.
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::size_t width() const;
  std::size_t height() const;
  void show(const std::vector<Line>& lines);
  /// The next key that has been pressed; nothing: none.
  std::optional<Input> read();

 private:
  explicit Terminal(void* screen, bool has_colour);
  void* const screen_;  // ncurses' SCREEN
  const bool has_colour_;
};

}  // namespace gpumem::cli::top
