#pragma once
#include <filesystem>
#include <optional>
#include <span>

#include "client/cli/monitor.h"
#include "client/cli/views.h"

namespace gpumem::cli {

struct Style {
  bool json = false;
  bool terminal = false;
  bool now = false;  ///< have the broker ask the driver first, for listings that can be renewed
};

/// One of the commands that ask the Monitor service once and show the answer.
struct Listing {
  const char* name;
  const char* about;
  bool watchable;
  Result<std::string> (*show)(const Monitor& monitor, const Style& style);
  bool renewable = false;  ///< takes Style::now
};

std::span<const Listing> listings();

/// The escape sequence that clears a terminal.
inline constexpr const char* kClearScreen = "\033[H\033[2J";

struct ListingOptions {
  std::filesystem::path runtime_folder;
  Style style;
  std::optional<double> watch_seconds;  ///< show again and again, this far apart
};

/// Runs `listing` and prints it, or its error. Answers the command's exit status.
int run_listing(const Listing& listing, const ListingOptions& options);

/// Prints `error` to standard error. Answers the exit status that goes with it.
int report(const Error& error);

}  // namespace gpumem::cli
