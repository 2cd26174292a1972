#pragma once
#include <cuda.h>

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/system/unique_fd.h"
#include "sim/machine/table.h"

namespace gpumem::sim {

/// An extent as one process holds it: through handles it was given and through mappings.
struct Extent {
  CUmemGenericAllocationHandle handle = 0;
  SlotRef slot;
  UniqueFd fd;
  std::uint64_t size = 0;
  std::uint32_t device = 0;    ///< index in the machine, or layout::kHost
  std::int32_t numa_node = 0;  ///< only of layout::kHost
  std::uint32_t handle_types = 0;
  unsigned char rdma_capable = 0;
  bool is_imported = false;
  bool is_exported = false;
  std::uint32_t handles = 0;  ///< references by cuMemCreate, import and retain, less releases
  std::uint32_t mappings = 0;
};

/// The extents that this process holds, by handle. Handles are numbers: any value may be asked for.
/// Invariant: an extent is here exactly while a handle or a mapping of it is left.
/// Threads: the caller holds the driver's lock.
class Handles {
 public:
  explicit Handles(Table& table) : table_(table) {}

  /// Adds an extent with no handle and no mapping yet. The caller adds one and then calls drop_if_unused.
  Extent& add(SlotRef slot, UniqueFd fd, const Table::Request& request, bool is_imported);

  /// The extent that `handle` names, or nullptr; handles that were all released name nothing.
  Extent* find(CUmemGenericAllocationHandle handle);

  /// Ends this process's hold of `extent` if neither handles nor mappings are left. Invalidates it then.
  void drop_if_unused(Extent& extent);

  /// Closes the descriptors that a forked child inherited, so that it pins nothing.
  void close_all_in_child();

 private:
  Table& table_;
  std::unordered_map<CUmemGenericAllocationHandle, std::unique_ptr<Extent>> extents_;
  CUmemGenericAllocationHandle last_ = 0x51'0000'0000;  // far from small numbers, descriptors and pointers
};

}  // namespace gpumem::sim
