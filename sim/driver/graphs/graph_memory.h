#pragma once
#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "sim/driver/memory/va_space.h"
#include "sim/driver/streams.h"

namespace gpumem::sim {

class Driver;

/// Memory that a node of a graph allocates. Its address is fixed from the start; bytes lie there from the
/// first launch or upload on, until they are trimmed or nothing needs the address any more.
struct GraphAllocation {
  CUdeviceptr address = 0;
  std::uint64_t wanted = 0;  ///< the requested size
  std::uint64_t size = 0;    ///< the charged size: whole extents
  CUmemPoolProps properties{};
  std::uint32_t device = 0;                  ///< index in the machine, or layout::kHost
  std::vector<CUmemAccessDesc> described{};  ///< as the program gave it
  std::vector<AccessChange> access{};        ///< `described` with the device's own access
  std::uint64_t owner = 0;                   ///< the graph whose node allocates it
  std::set<std::uint64_t> freeing{};         ///< the graphs with a node that frees it
  bool is_live = false;                      ///< allocated by a launch, and not freed since
  Ticket last{};                             ///< the latest use of it that is known
};
using GraphAllocationRef = std::shared_ptr<GraphAllocation>;

/// The memory of the graphs of one process. Memory that no graph uses is kept for other graphs of the process
/// until it is trimmed: charged, but used by nobody.
/// Threads: the caller holds the driver's lock.
class GraphMemory {
 public:
  explicit GraphMemory(Driver& driver) : driver_(driver) {}

  /// Reserves an address for an allocation like `like`, of at least one byte.
  /// Errors  CUDA_ERROR_OUT_OF_MEMORY: more than the device has, or no addresses.
  CUresult add(GraphAllocation like, GraphAllocationRef* out);
  /// The allocation that holds `address`; nullptr: there is none.
  GraphAllocationRef find(CUdeviceptr address) const;

  /// Makes sure that bytes lie at the allocation's address. Errors  CUDA_ERROR_OUT_OF_MEMORY.
  CUresult back(const GraphAllocation& allocation);
  bool is_backed(const GraphAllocation& allocation) const;
  /// Frees the live allocation that begins at `address`, for others after `freed`.
  /// Errors  CUDA_ERROR_INVALID_VALUE: there is none.
  CUresult free(CUdeviceptr address, const Ticket& freed);

  /// Ends what neither a graph nor a launch needs any more, and keeps its bytes.
  void collect();
  /// Gives all bytes of the device back that neither a live allocation nor a launch uses.
  void trim(std::uint32_t device);

  struct Figures {
    std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  };
  Figures figures(std::uint32_t device) const;
  /// From now on the highest is what there is now.
  void reset_used_high(std::uint32_t device);
  void reset_reserved_high(std::uint32_t device);

 private:
  struct Kept {
    Extent* extent = nullptr;  ///< has one handle and no mapping
    std::uint64_t size = 0;
    std::uint32_t device = 0;
  };
  CUresult take_extent(const GraphAllocation& allocation, Extent** out);
  void keep(const GraphAllocation& allocation);
  void drop_kept(std::uint32_t device);
  void note_highs(std::uint32_t device);

  Driver& driver_;
  std::map<CUdeviceptr, GraphAllocationRef> allocations_;
  std::vector<Kept> kept_;
  struct Highs {
    std::uint64_t used = 0, reserved = 0;
  };
  std::map<std::uint32_t, Highs> highs_;  ///< by device
};

}  // namespace gpumem::sim
