#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/host/pod_reader.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// What the kernel says of a process.
struct Process {
  std::uint64_t started = 0;  ///< as start_time() of process_signal.h; with the pid, it names the process
  std::uint32_t uid = 0;      ///< effective
  std::vector<std::uint32_t> gids;  ///< the effective group first
  std::string command;
  PodReader::Found in;  ///< which pod
};

/// Errors  kNotFound: there is no such process (any more); kPermissionDenied: there is, but the kernel does
///         not show it to us.
Result<Process> find_process(std::int64_t pid, const PodReader& pods = {});

/// The name that a process gives itself, for people: unprintable characters become `?`. Empty if it is
/// unknown.
std::string command_of(std::int64_t pid);

}  // namespace gpumem::host
