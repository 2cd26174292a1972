#include "client/cli/top/terminal.h"

#define NCURSES_NOMACROS
#include <curses.h>

#include <cstdio>

namespace gpumem::cli::top {
namespace {

// Pairs of colours are numbered as tones, from 1.
short pair_of(Tone tone) { return static_cast<short>(static_cast<int>(tone) + 1); }

void prepare_colours() {
  ::start_color();
  ::use_default_colors();
  constexpr short kDefault = -1;
  const auto set = [](Tone tone, short colour) { ::init_pair(pair_of(tone), colour, kDefault); };
  set(Tone::kLent, COLOR_GREEN);
  set(Tone::kIdle, COLOR_BLUE);
  set(Tone::kContexts, COLOR_MAGENTA);
  set(Tone::kUnmanaged, COLOR_RED);
  set(Tone::kWarning, COLOR_YELLOW);
  set(Tone::kAlarm, COLOR_RED);
}

attr_t attributes_of(Tone tone, bool has_colour) {
  switch (tone) {
    case Tone::kPlain: return A_NORMAL;
    case Tone::kTitle: return A_BOLD;
    case Tone::kFaint: return A_DIM;
    case Tone::kSelected: return A_REVERSE;
    default: break;
  }
  return has_colour ? static_cast<attr_t>(COLOR_PAIR(pair_of(tone))) : A_NORMAL;
}

Input::Key key_of(int code) {
  switch (code) {
    case KEY_UP: return Input::Key::kUp;
    case KEY_DOWN: return Input::Key::kDown;
    case KEY_PPAGE: return Input::Key::kPageUp;
    case KEY_NPAGE: return Input::Key::kPageDown;
    case KEY_HOME: return Input::Key::kHome;
    case KEY_END: return Input::Key::kEnd;
    case KEY_ENTER:
    case '\n':
    case '\r': return Input::Key::kEnter;
    case KEY_BACKSPACE:
    case '\b':
    case 127: return Input::Key::kErase;
    case 27: return Input::Key::kEscape;
    default: return Input::Key::kOther;
  }
}

}  // namespace

Terminal::Terminal(void* screen, bool has_colour) : screen_(screen), has_colour_(has_colour) {}

std::unique_ptr<Terminal> Terminal::open(bool has_colour) {
  SCREEN* const screen = ::newterm(nullptr, stdout, stdin);
  if (screen == nullptr) return nullptr;
  constexpr int kEscapeDelay = 25;  // ms that a key's sequence may take
  ::set_term(screen);
  ::set_escdelay(kEscapeDelay);
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  const bool colours = has_colour && ::has_colors() == TRUE;
  if (colours) prepare_colours();
  return std::unique_ptr<Terminal>(new Terminal(screen, colours));
}

Terminal::~Terminal() {
  ::endwin();
  ::delscreen(static_cast<SCREEN*>(screen_));
}

std::size_t Terminal::width() const { return static_cast<std::size_t>(::getmaxx(stdscr)); }
std::size_t Terminal::height() const { return static_cast<std::size_t>(::getmaxy(stdscr)); }

void Terminal::show(const std::vector<Line>& lines) {
  ::werase(stdscr);
  for (std::size_t i = 0; i < lines.size() && i < height(); ++i) {
    ::wmove(stdscr, static_cast<int>(i), 0);
    for (const Span& span : lines[i]) {
      ::wattrset(stdscr, static_cast<int>(attributes_of(span.tone, has_colour_)));
      ::waddnstr(stdscr, span.text.data(), static_cast<int>(span.text.size()));
    }
  }
  ::wattrset(stdscr, A_NORMAL);
  ::wrefresh(stdscr);
}

std::optional<Input> Terminal::read() {
  const int code = ::wgetch(stdscr);
  if (code == ERR) return std::nullopt;
  constexpr int kFirst = 0x20, kLast = 0x7e;
  if (code >= kFirst && code <= kLast) return Input{Input::Key::kLetter, static_cast<char>(code)};
  return Input{key_of(code)};
}

}  // namespace gpumem::cli::top
