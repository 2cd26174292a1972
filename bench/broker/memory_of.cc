#include "bench/broker/memory_of.h"

#include <fstream>
#include <string>

#include "bench/must.h"

namespace gpumem::bench {
namespace {

// `key:  123 kB` in a file of /proc.
std::int64_t kibibytes_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  give_up("no figure in /proc", path + " " + key);
}

}  // namespace

ProcessMemory memory_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  return {kibibytes_in(folder + "/smaps_rollup", "Rss"), kibibytes_in(folder + "/smaps_rollup", "Pss"),
          kibibytes_in(folder + "/status", "VmPTE")};
}

std::int64_t kernel_slab() { return kibibytes_in("/proc/meminfo", "Slab"); }

}  // namespace gpumem::bench
