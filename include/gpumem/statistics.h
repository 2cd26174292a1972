#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpumem/bytes.h"
#include "gpumem/options.h"

// What sessions and allocators report of themselves.

namespace gpumem {

/// The figures of one device for this session's job if it is in one, else for its tenant.
struct DeviceUsage {
  std::string device;  ///< UUID
  Bytes pool;
  Bytes free;  ///< charged to nobody
  Bytes guarantee;
  Bytes limit;
  Bytes charged;    ///< to the tenant or job, all its sessions together
  Bytes available;  ///< for the tenant or job without waiting, if nobody else waits
  Bytes pressure;   ///< what the broker asks this session to give back
  /// The deadline of the pressure. Nothing if there is none.
  std::optional<std::chrono::steady_clock::time_point> pressure_deadline{};
};

/// The use of memory by all sessions of a job since it began.
struct JobAccount {
  /// That they had at one time, the most of any GPU. Of the host, if they had nothing of a GPU.
  Bytes peak;
  std::chrono::milliseconds waited{0};  ///< for memory, all requests together
  std::uint64_t denied = 0;             ///< requests
};

struct SizeClassStatistics {
  Bytes size;                     ///< the largest block of the class
  std::uint64_t in_use = 0;       ///< blocks
  std::uint64_t allocations = 0;  ///< since the beginning
  std::uint64_t cache_hits = 0;   ///< allocations served from the calling thread's cache
};

struct AllocatorStatistics {
  Bytes in_use;       ///< requested and not freed
  Bytes placed;       ///< bytes that the blocks in use occupy, including rounding
  Bytes cached;       ///< free, in the caches of threads
  Bytes committed;    ///< lent by the broker
  Bytes returnable;   ///< the part of `committed` in wholly free extents
  Bytes reserved;     ///< addresses
  Bytes peak_in_use;  ///< the most that blocks took, including rounding and caches
  Bytes peak_committed;
  double fragmentation = 0;  ///< the part of `committed` that is not placed, cached or returnable
  std::uint64_t allocations = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t growths = 0;                 ///< requests to the broker that were granted
  std::uint64_t refused = 0;                 ///< requests to the broker that were refused
  std::uint64_t moved_extents = 0;           ///< remapped at another address
  std::uint64_t given_back = 0;              ///< extents
  std::vector<SizeClassStatistics> classes;  ///< those ever used; all larger blocks are the last one
};

/// A block in use.
struct BlockInfo {
  std::uint64_t address = 0;
  Bytes bytes;                       ///< as requested
  Bytes placed;                      ///< including rounding
  StreamHandle stream = nullptr;     ///< the stream it was allocated on
  std::chrono::milliseconds age{0};  ///< to within a second
  std::string tag{};
};

}  // namespace gpumem
