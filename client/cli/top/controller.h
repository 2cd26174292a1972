#pragma once
#include <string>
#include <vector>

#include "client/cli/top/screen.h"

namespace gpumem::cli::top {

/// A key, or a letter.
struct Input {
  enum class Key { kLetter, kUp, kDown, kPageUp, kPageDown, kHome, kEnd, kEnter, kEscape, kErase, kOther };
  Key key = Key::kLetter;
  char letter = 0;
};

/// A key may have the program do one of these, besides drawing anew.
enum class Action { kNone, kQuit, kAskToEnd, kEnd };

/// Moves through the rows by keys. Knows neither a terminal nor a process.
class Controller {
 public:
  explicit Controller(View view) : view_(std::move(view)) {}

  /// The rows may have changed: the selection stays with its row. `room`  for how many there is room.
  void update(const std::vector<Row>& rows, std::size_t room);
  /// `rows` and `room`  as of the last update().
  Action handle(const Input& input, const std::vector<Row>& rows, std::size_t room);

  View& view() { return view_; }
  /// The selected row; null: there is none.
  const Row* selected(const std::vector<Row>& rows) const;
  /// Asks the question, which `y` answers; then handle() returns kEnd.
  void ask(std::string question);
  void say(std::string message);

 private:
  enum class Mode { kRows, kFilter, kSearch, kQuestion };

  Action handle_letter(char letter, const std::vector<Row>& rows);
  void handle_typing(const Input& input, const std::vector<Row>& rows);
  void type(Mode mode, std::string text);
  void move_to(std::size_t row, const std::vector<Row>& rows);
  void move(const Input& input, const std::vector<Row>& rows, std::size_t room);
  void fold(const std::vector<Row>& rows);
  /// Selects the first row from `from` on that has the words. False: none has them, and a message says so.
  bool find_next(const std::vector<Row>& rows, std::size_t from);

  View view_;
  Mode mode_ = Mode::kRows;
  std::string typed_;
  std::string searched_;
  std::string selected_;  ///< key of the row
};

}  // namespace gpumem::cli::top
