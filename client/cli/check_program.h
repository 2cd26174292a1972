#pragma once
#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "client/cli/check.h"
#include "client/cli/mapped_drivers.h"

namespace gpumem::cli {

/// Whether a running program borrows: what is found of it, and the figures.
struct ProgramReport {
  pid_t pid = 0;
  std::vector<Finding> findings;
  std::vector<MappedDriver> drivers;
  std::vector<std::uint64_t> sessions;  ///< at the broker
  std::uint64_t charged = 0;            ///< bytes of its sessions that are lent
  std::uint64_t declared = 0;           ///< bytes that its sessions are charged besides
  std::uint64_t past_broker = 0;        ///< bytes that it is seen to hold past the broker
};

/// Looks into the process, and asks the broker for it. A fact that cannot be found out is a finding, too.
ProgramReport check_program(pid_t pid, const std::filesystem::path& runtime_folder);

/// As findings_json, with the figures.
Json program_json(const ProgramReport& report);

}  // namespace gpumem::cli
