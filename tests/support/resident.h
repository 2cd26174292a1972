#pragma once
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace gpumem::test {

/// Bytes of the host's memory that the process has.
inline std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream figures("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t all = 0, resident = 0;
  figures >> all >> resident;
  return resident * static_cast<std::uint64_t>(::getpagesize());
}

}  // namespace gpumem::test
