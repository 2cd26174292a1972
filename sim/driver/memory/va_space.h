#pragma once
#include <cuda.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/driver/handles.h"
#include "sim/machine/machine.h"
#include "sim/machine/table_layout.h"

namespace gpumem::sim {

/// Access of each device of the machine, and last of the host, as CUmemAccess_flags.
using Access = std::array<std::uint8_t, layout::kHost + 1>;

struct AccessChange {
  std::uint32_t device;
  CUmemAccess_flags flags;
};

struct Mapping {
  std::uint64_t size = 0;
  Extent* extent = nullptr;
  Access access{};
};

/// The use of an address range, which decides how it may be released.
enum class Use : std::uint8_t {
  kProgram,     ///< cuMemAddressReserve: the program maps it
  kAllocation,  ///< cuMemAlloc and its kind
  kManaged,     ///< cuMemAllocManaged
  kOpened,      ///< cuIpcOpenMemHandle
  kPool,        ///< what pools are made of
  kGraph,       ///< what nodes of graphs allocate
};

/// An address range; `owner` is the context that it belongs to, 0 for kProgram.
struct Reservation {
  std::uint64_t size = 0;
  std::uint64_t owner = 0;
  Use use = Use::kProgram;
};

/// The device addresses of one process: reservations, and mappings that lie whole inside one reservation
/// each. Device addresses are host addresses: what may not be touched is protected memory. Failed calls
/// change nothing. Threads: the caller holds the driver's lock.
class VaSpace {
 public:
  struct Request {
    std::uint64_t size = 0;
    std::uint64_t alignment = kGranularity.count;
    Use use = Use::kProgram;
    std::uint64_t owner = 0;
    CUdeviceptr hint = 0;  ///< where it shall begin, if that is free
  };
  CUresult reserve(const Request& request, CUdeviceptr* out);
  /// Gives a range back that is reserved exactly so, by `owner`, and holds no mapping.
  CUresult unreserve(CUdeviceptr address, std::uint64_t size, std::uint64_t owner);

  /// Maps the first `size` bytes of `extent` without access and counts the mapping in it.
  CUresult map(CUdeviceptr address, std::uint64_t size, Extent& extent);
  /// Takes away the mappings that fill the range exactly and lowers the counts of their extents; those that
  /// came to zero are appended to `released`, for the caller to drop.
  CUresult unmap(CUdeviceptr address, std::uint64_t size, std::vector<Extent*>& released);
  /// Changes access to the mappings that fill the range exactly.
  CUresult set_access(CUdeviceptr address, std::uint64_t size, const std::vector<AccessChange>& changes);

  /// Success if `device` may touch the whole range; CUDA_ERROR_INVALID_VALUE if it is not all mapped,
  /// CUDA_ERROR_ILLEGAL_ADDRESS if access is lacking.
  CUresult check_access(CUdeviceptr address, std::uint64_t size, std::uint32_t device, bool is_write) const;

  struct Found {
    CUdeviceptr base = 0;
    const Mapping* mapping = nullptr;  ///< nullptr: not mapped
    CUdeviceptr range_base = 0;
    const Reservation* reservation = nullptr;  ///< nullptr: no device address
  };
  Found find(CUdeviceptr address) const;
  /// Whether no mapping touches the range.
  bool is_unmapped(CUdeviceptr address, std::uint64_t size) const;
  /// The ranges that belong to context `owner`.
  std::vector<CUdeviceptr> owned_by(std::uint64_t owner) const;

 private:
  using Mappings = std::map<CUdeviceptr, Mapping>;
  struct Run {
    Mappings::iterator begin, end;
    bool is_whole;
  };
  Run mappings_filling(CUdeviceptr address, std::uint64_t size);

  Mappings mappings_;
  std::map<CUdeviceptr, Reservation> reservations_;
};

}  // namespace gpumem::sim
