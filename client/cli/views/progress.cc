#include "client/cli/views/progress.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/thread_guards.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kTransferCells = 40;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr int kReaderPatience = 200;  // ms
constexpr const char* kClearLine = "\r\033[K";

// The width of the terminal, or `otherwise` if it is not known.
std::size_t terminal_columns(std::size_t otherwise) {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col : otherwise;
}

// A line that is longer than the terminal is wide could not be drawn anew, and a full line begins the next.
std::string fitted(std::string text, std::size_t columns) {
  if (text.size() >= columns) text.resize(columns - 1);
  return text;
}

// Messages neither end this process nor hold it up: their reader may be gone, or read no more.
void tell(const std::string& text) {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&error, 1, kReaderPatience) != 1 || (error.revents & POLLOUT) == 0) return;
  const NoPipeSignal quiet;
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

}  // namespace

Progress::Progress(std::string who) : who_(std::move(who)), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& state, const std::string& detail) {
  const std::string state_line = who_ + ": " + printable(state);
  if (is_terminal_) {
    shown_ = state_line;
    tell(kClearLine + fitted(state_line + printable(detail), terminal_columns(std::string::npos)));
  } else if (state_line != shown_) {
    shown_ = state_line;
    tell(state_line + "\n");
  }
}

void Progress::clear() {
  if (is_terminal_ && !shown_.empty()) tell(kClearLine);
  shown_.clear();
}

void Progress::say(const std::string& words) {
  clear();
  tell(who_ + ": " + printable_lines(words) + "\n");
}

std::string transfer_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          std::size_t columns) {
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(kTransferCells));
  return fitted(what + " [" + std::string(full, '#') + std::string(kTransferCells - full, ' ') + "] " +
                    size_text(done) + " of " + size_text(total),
                columns);
}

TransferBar::TransferBar(std::string what, std::uint64_t total)
    : what_(std::move(what)), total_(total), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

TransferBar::~TransferBar() {
  if (is_drawn_) tell(kClearLine);
}

void TransferBar::show(std::uint64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_terminal_ || now < next_) return;
  next_ = now + kRedraw;
  is_drawn_ = true;
  tell(kClearLine + transfer_text(what_, done, total_, terminal_columns(80)));
}

}  // namespace gpumem::cli
