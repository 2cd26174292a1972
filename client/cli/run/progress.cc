#include "client/cli/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "client/cli/table.h"

namespace gpumem::cli {
namespace {

// A line that is longer than the terminal is wide could not be drawn anew.
std::string fitted(std::string text) {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  if (is_known && text.size() >= size.ws_col) text.resize(size.ws_col - 1U);
  return text;
}

}  // namespace

Progress::Progress(std::string who) : who_(std::move(who)), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& state, const std::string& detail) {
  const std::string state_line = who_ + ": " + printable(state);
  if (is_terminal_) {
    shown_ = state_line;
    std::cerr << "\r\033[K" << fitted(state_line + printable(detail)) << std::flush;
  } else if (state_line != shown_) {
    shown_ = state_line;
    std::cerr << state_line << "\n" << std::flush;
  }
}

void Progress::clear() {
  if (is_terminal_ && !shown_.empty()) std::cerr << "\r\033[K" << std::flush;
  shown_.clear();
}

void Progress::say(const std::string& words) {
  clear();
  std::cerr << who_ << ": " << printable(words) << "\n" << std::flush;
}

}  // namespace gpumem::cli
