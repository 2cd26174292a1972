#pragma once
#include <sys/types.h>

#include <cstdint>

namespace gpumem::bench {

/// Memory of one process, in bytes, as the kernel counts it.
struct ProcessMemory {
  std::int64_t resident = 0;      ///< Rss: everything it has mapped and touched, shared pages in full
  std::int64_t proportional = 0;  ///< Pss: shared pages by the number of processes that map them
  std::int64_t page_tables = 0;   ///< VmPTE
  /// The memory that the process costs the machine: resident pages, and the tables that map them.
  std::int64_t total() const { return resident + page_tables; }
};
ProcessMemory memory_of(pid_t pid);

/// The kernel's own objects (sockets, files, inodes), of the whole machine: /proc/meminfo's Slab.
std::int64_t kernel_slab();

}  // namespace gpumem::bench
