#include "client/cli/top/controller.h"

#include <algorithm>

namespace gpumem::cli::top {

using Key = Input::Key;

void Controller::update(const std::vector<Row>& rows, std::size_t room) {
  const auto same = std::ranges::find(rows, selected_, &Row::key);
  if (same != rows.end())
    view_.selected = static_cast<std::size_t>(same - rows.begin());
  else
    view_.selected = rows.empty() ? 0 : std::min(view_.selected, rows.size() - 1);
  move_to(view_.selected, rows);
  if (room == 0 || room == View::kUnbounded) return;
  view_.first =
      std::clamp(view_.first, view_.selected + 1 - std::min(view_.selected + 1, room), view_.selected);
  view_.first = std::min(view_.first, rows.size() - std::min(rows.size(), room));
}

const Row* Controller::selected(const std::vector<Row>& rows) const {
  return view_.selected < rows.size() ? &rows[view_.selected] : nullptr;
}

void Controller::ask(std::string question) {
  mode_ = Mode::kQuestion;
  view_.prompt = std::move(question);
}

void Controller::say(std::string message) { view_.message = std::move(message); }

Action Controller::handle(const Input& input, const std::vector<Row>& rows, std::size_t room) {
  view_.message.clear();
  if (mode_ == Mode::kQuestion) {
    mode_ = Mode::kRows;
    view_.prompt.clear();
    return input.key == Key::kLetter && (input.letter == 'y' || input.letter == 'Y') ? Action::kEnd
                                                                                     : Action::kNone;
  }
  if (mode_ != Mode::kRows) {
    handle_typing(input, rows);
    return Action::kNone;
  }
  if (input.key == Key::kLetter) return handle_letter(input.letter, rows);
  if (input.key == Key::kEscape) {
    view_.shows_help = false;
    view_.choice.filter.clear();
  }
  if (input.key == Key::kEnter) fold(rows);
  move(input, rows, room);
  return Action::kNone;
}

Action Controller::handle_letter(char letter, const std::vector<Row>& rows) {
  RowChoice& choice = view_.choice;
  const auto sorts = static_cast<int>(kSortNames.size());
  const auto sort_by = [&](int step) {
    choice.sort = static_cast<Sort>((static_cast<int>(choice.sort) + step + sorts) % sorts);
  };
  switch (letter) {
    case 'q': return Action::kQuit;
    case 'h':
    case '?': view_.shows_help = !view_.shows_help; break;
    case 's': sort_by(1); break;
    case 'S': sort_by(-1); break;
    case 't': choice.is_flat = !choice.is_flat; break;
    case 'a': choice.has_empty = !choice.has_empty; break;
    case 'f': type(Mode::kFilter, choice.filter); break;
    case '/': type(Mode::kSearch, ""); break;
    case 'n': find_next(rows, view_.selected + 1); break;
    case ' ': fold(rows); break;
    case 'k': return selected(rows) != nullptr ? Action::kAskToEnd : Action::kNone;
    default: break;
  }
  return Action::kNone;
}

void Controller::type(Mode mode, std::string text) {
  mode_ = mode;
  typed_ = std::move(text);
  view_.prompt = (mode_ == Mode::kFilter ? "only: " : "search: ") + typed_ + "_";
}

// A filter holds as it is typed; a search goes to the first row that has the words.
void Controller::handle_typing(const Input& input, const std::vector<Row>& rows) {
  const bool is_filter = mode_ == Mode::kFilter;
  if (input.key == Key::kLetter) typed_ += input.letter;
  if (input.key == Key::kErase && !typed_.empty()) typed_.pop_back();
  if (input.key == Key::kEscape) typed_.clear();
  if (is_filter) view_.choice.filter = typed_;
  if (input.key == Key::kEscape || input.key == Key::kEnter) {
    mode_ = Mode::kRows;
    view_.prompt.clear();
    if (!is_filter && input.key == Key::kEnter) find_next(rows, view_.selected);
    return;
  }
  type(mode_, typed_);
  if (is_filter) return;
  searched_ = typed_;
  if (!find_next(rows, view_.selected)) view_.prompt += "  no row has this";
}

bool Controller::find_next(const std::vector<Row>& rows, std::size_t from) {
  if (searched_.empty()) return true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t at = (from + i) % rows.size();
    if (!matches(rows[at], searched_)) continue;
    move_to(at, rows);
    return true;
  }
  say("no row has '" + searched_ + "'");
  return false;
}

void Controller::move_to(std::size_t row, const std::vector<Row>& rows) {
  view_.selected = row;
  selected_ = row < rows.size() ? rows[row].key : "";
}

void Controller::move(const Input& input, const std::vector<Row>& rows, std::size_t room) {
  if (rows.empty()) return;
  const std::size_t last = rows.size() - 1;
  const std::size_t page = std::max<std::size_t>(room, 1);
  const std::size_t at = view_.selected;
  switch (input.key) {
    case Key::kUp: return move_to(at - std::min<std::size_t>(at, 1), rows);
    case Key::kDown: return move_to(std::min(at + 1, last), rows);
    case Key::kPageUp: return move_to(at - std::min(at, page), rows);
    case Key::kPageDown: return move_to(std::min(at + page, last), rows);
    case Key::kHome: return move_to(0, rows);
    case Key::kEnd: return move_to(last, rows);
    default: return;
  }
}

void Controller::fold(const std::vector<Row>& rows) {
  const Row* const row = selected(rows);
  if (row == nullptr || !row->has_more) return;
  if (view_.choice.folded.erase(row->key) == 0) view_.choice.folded.insert(row->key);
}

}  // namespace gpumem::cli::top
