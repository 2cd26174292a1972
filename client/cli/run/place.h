#pragma once
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "client/cli/run/progress.h"
#include "client/cli/run/signals.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::cli {

struct PlaceOptions {
  std::filesystem::path runtime_folder;
  std::string device;  ///< UUID
  Bytes bytes;
  std::chrono::milliseconds wait{0};
  std::string label;
};

/// How waiting has ended: with the memory to be had, or by a signal to this process.
struct Place {
  std::optional<int> signal{};
};

/// Waits in the broker's line until the tenant can get `bytes`, or as much of them as its limit allows. The
/// memory is granted, so that borrowers are asked for it, and given back at once: whoever asks next gets it.
/// Errors  the broker's, with what stands in the way: kResourceExhausted (waiting does not help),
///         kDeadlineExceeded (waited in vain), kUnavailable.   Blocks.
Result<Place> wait_for_place(const PlaceOptions& options, const Signals& signals, Progress& progress);

}  // namespace gpumem::cli
