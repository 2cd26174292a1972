#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpumem::cli {

/// What the kernel tells of a process's memory on the host.
struct HostMemory {
  std::uint64_t virt = 0;      ///< addresses
  std::uint64_t resident = 0;  ///< the part of `virt` in memory
  std::uint64_t shared = 0;    ///< the part of `resident` that is files and shared memory
};

/// The figures in `status`, the text of /proc/PID/status, if that process has this name and user. A number
/// may be another process's here: the caller can be in another PID namespace than the broker.
/// `command`  empty: any process.
std::optional<HostMemory> host_memory_in(std::string_view status, const std::string& command,
                                         std::uint32_t uid);

}  // namespace gpumem::cli
