#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "client/cli/run/command_line.h"
#include "gpumem/bytes.h"

namespace gpumem::cli {

struct ReserveOptions {
  std::filesystem::path runtime_folder;
  Bytes bytes;
  std::string device;                 ///< as RunOptions::device; empty: the first that is visible
  std::chrono::milliseconds wait{0};  ///< 0: not at all
  std::string on_pressure;            ///< as PressureHook::parse
  std::string name;
  std::vector<std::string> words;  ///< the command; none: until interrupted
};

/// `gpumem reserve`: has memory charged to the tenant while a command runs that takes it by itself. Answers
/// the exit status; ends this process by a signal if the command has ended so.
int reserve_memory(const ReserveOptions& options);

/// Adds `gpumem reserve` to the command line; as add_run_command.
void add_reserve_command(CLI::App& app, const std::string& runtime_dir, const SplitLine& line, int& status);

}  // namespace gpumem::cli
