#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "client/cli/run/program/signals.h"
#include "client/cli/views/progress.h"
#include "client/cli/views/text.h"

namespace gpumem::cli {

/// A command that has ended, as the broker's events name it.
struct EndedCommand {
  std::filesystem::path runtime_folder;
  std::string tenant;
  std::uint64_t job = 0;  ///< number of its job; 0: it has none
  pid_t pid = 0;
  WallTime began;
  int status = 0;  ///< as waitpid() tells
};

/// If the command has failed: says which of its processes the broker has ended, why, and where to look.
/// Nothing if the broker has ended none, or does not answer.
/// Ends this process as the command has ended if gRPC is stuck (AnswerInTime).   Blocks.
void tell_terminations(const EndedCommand& command, const Signals& signals, Progress& progress);

}  // namespace gpumem::cli
