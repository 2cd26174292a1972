#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "client/cli/run/program/signals.h"
#include "client/cli/views/progress.h"
#include "gpumem/bytes.h"
#include "gpumem/session.h"

namespace gpumem::cli {

struct JobReservationOptions {
  std::filesystem::path runtime_folder;
  std::string device;  ///< UUID
  std::string name;    ///< of the device, for people
  Bytes bytes;
  std::chrono::milliseconds wait{0};
};

/// Reserves `bytes` for the job that `session` owns, or as much of them as its tenant can have. Waits in the
/// broker's queue, and says so. Says also how much is reserved, and why, if it is less. Returns the signal
/// that has ended the waiting; none: the memory is reserved. Errors  as Session::reserve_for_job;
/// kResourceExhausted, too: no thread.   Blocks.
Result<std::optional<int>> reserve_for_job(Session& session, const JobReservationOptions& options,
                                           const Signals& signals, Progress& progress);

}  // namespace gpumem::cli
