#include "client/cli/regions/transfer_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "client/cli/table.h"

namespace gpumem::cli {
namespace {

constexpr std::size_t kBarCells = 40;
constexpr std::chrono::milliseconds kRedraw{100};

std::size_t terminal_columns() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col : kUsual;
}

}  // namespace

// One column stays free: a full line would begin the next one.
std::string transfer_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          std::size_t columns) {
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(kBarCells));
  std::string text = what + " [" + std::string(full, '#') + std::string(kBarCells - full, ' ') + "] " +
                     size_text(done) + " of " + size_text(total);
  if (text.size() >= columns) text.resize(columns - 1);
  return text;
}

TransferBar::TransferBar(std::string what, std::uint64_t total)
    : what_(std::move(what)), total_(total), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

TransferBar::~TransferBar() {
  if (is_drawn_) std::cerr << "\r\033[K" << std::flush;
}

void TransferBar::show(std::uint64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_terminal_ || now < next_) return;
  next_ = now + kRedraw;
  is_drawn_ = true;
  std::cerr << "\r\033[K" << transfer_text(what_, done, total_, terminal_columns()) << std::flush;
}

}  // namespace gpumem::cli
