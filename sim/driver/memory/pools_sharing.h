#pragma once
#include <cuda.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/system/unique_fd.h"
#include "sim/machine/extent_file.h"

namespace gpumem::sim {

/// A pool as every process of the machine knows it: its process, and the how manieth there.
struct PoolId {
  std::int32_t pid = 0;
  std::uint32_t count = 0;
  std::uint64_t start = 0;  ///< of the process

  bool operator==(const PoolId&) const = default;
};

/// What the descriptor of an exported pool tells.
struct SharedPool {
  PoolId id;
  std::uint32_t device = 0;  ///< index in the machine, or layout::kHost
  std::int32_t numa_node = 0;
  std::uint32_t handle_types = 0;
};

/// A descriptor that tells of `pool`, which nobody can change. It pins no memory. Invalid: the system
/// refused.
UniqueFd describe_pool(const SharedPool& pool, const std::string& folder);
/// The pool that `fd` describes; nothing if describe_pool did not make it on the machine with this folder.
/// Any descriptor is safe.
std::optional<SharedPool> read_pool(int fd, const std::string& folder);

/// Where the memory of one allocation lies.
struct PoolPointer {
  PoolId pool;
  SlotRef slot;
  std::uint64_t offset = 0, size = 0;
};

CUmemPoolPtrExportData pack(const PoolPointer& pointer);
/// Nothing if pack() did not make the data.
std::optional<PoolPointer> unpack(const CUmemPoolPtrExportData& data);

}  // namespace gpumem::sim
