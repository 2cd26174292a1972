#pragma once
#include <sys/types.h>

#include <cstdint>

namespace gpumem::sim {

/// A process, told apart from a later one of the same number by its start time.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start = 0;  ///< clock ticks since boot

  auto operator<=>(const ProcessId&) const = default;
};

/// The calling process.
ProcessId this_process();

/// True while `process` can hold memory: it exists and is not merely waiting to be reaped. False also if it
/// cannot be seen (another PID namespace), so false is a reason to look closer, not a proof.
bool is_alive(ProcessId process);

}  // namespace gpumem::sim
