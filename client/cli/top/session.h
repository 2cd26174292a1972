#pragma once
#include <filesystem>

#include "client/cli/top/screen.h"

namespace gpumem::cli::top {

struct Options {
  std::filesystem::path runtime_folder;
  bool is_once = false;
  View view{};
  bool has_colour = false;
};

/// Shows the broker's samples on the terminal until the user quits; once, or where ncurses knows no such
/// terminal, as text. Returns the exit status.   Blocks.
int run(const Options& options);

}  // namespace gpumem::cli::top
