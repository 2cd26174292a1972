#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "sim/driver/memory/pools_blocks.h"
#include "sim/driver/memory/pools_sharing.h"
#include "sim/driver/memory/va_space.h"

namespace gpumem::sim {

class Driver;

/// One memory pool. Its chunks are extents of at least 2 MiB: what is charged to the device.
struct Pool {
  std::uint64_t number = 0;  ///< the handle
  CUmemLocation location{};
  std::uint32_t device = 0;  ///< index in the machine, or layout::kHost
  std::uint32_t handle_types = 0;
  std::uint64_t max_size = 0;  ///< of the reserved memory; 0: no limit
  PoolId id{};                 ///< equal in every process
  bool is_managed = false;     ///< the host and all devices have access; `location` is where pages shall lie
  bool is_default = false;
  bool is_imported = false;
  bool is_exported = false;
  bool is_destroyed = false;  ///< goes with its last block

  bool follows_events = true;
  bool is_opportunistic = true;
  bool adds_dependencies = true;
  std::uint64_t release_threshold = 0;
  std::uint64_t reserved_high = 0, used_high = 0;

  Access access{};
  Blocks blocks{};
  std::map<CUdeviceptr, unsigned> imports{};  ///< how often each imported pointer was imported

  /// Pools that share with other processes never give memory back while they live; so says NVIDIA's CUDA
  /// Programming Guide of the real driver's (Stream-Ordered Memory Allocator, limitations of IPC pools).
  bool keeps_memory() const { return handle_types != 0; }
};

/// The memory pools of one process: stream-ordered memory. A CUmemoryPool is a number that is never given out
/// again. Failed calls change nothing. Threads: the caller holds the driver's lock.
class Pools {
 public:
  explicit Pools(Driver& driver) : driver_(driver) {}

  /// Makes a pool of `like`'s properties.
  Pool& create(const Pool& like);
  /// nullptr if there is none (any more).
  Pool* find(CUmemoryPool handle);
  /// The pool goes with its last block; where it was current the default one is.
  void destroy(Pool& pool);

  /// The pool that a location has from the start, made when first asked for; the one that is set for it.
  Pool& default_of(const CUmemLocation& location, bool is_managed = false);
  Pool& current_of(const CUmemLocation& location, bool is_managed = false);
  void set_current(const CUmemLocation& location, const Pool& pool);

  /// Takes memory for work that comes later in `stream`.
  /// Managed pools give whole pages, with the advice that they shall lie in the pool's location.
  /// Errors  CUDA_ERROR_OUT_OF_MEMORY: neither the pool nor its device has room.
  CUresult allocate(Pool& pool, std::uint64_t size, const StreamRef& stream, CUdeviceptr* out);
  /// Frees the block of any pool that begins at `address`: for others after `freed`, or at once.
  /// Errors  CUDA_ERROR_INVALID_VALUE: there is none.
  CUresult free(CUdeviceptr address, const Ticket& freed);
  /// Frees what cuMemAlloc gave when the work in `stream` is done. Errors  the same.
  CUresult free_allocation(CUdeviceptr address, const StreamRef& stream);

  /// Maps the block of another process's pool; a second time it is the same address.
  /// Errors  CUDA_ERROR_INVALID_VALUE: it is no (living) block of the pool.
  CUresult import(Pool& pool, const PoolPointer& pointer, CUdeviceptr* out);

  /// Sets access for the pool's memory, now and later.
  CUresult set_access(Pool& pool, const std::vector<AccessChange>& changes);

  /// The host has waited for some work: pools give back what exceeds their thresholds, and what is freed at a
  /// point that is past is free for all streams. So is memory of graphs that are gone.
  void synchronized();
  /// Gives unused chunks back as long as `keep` bytes stay reserved.
  void trim(Pool& pool, std::uint64_t keep);
  /// Gives all unused memory of the device back. False if there was none.
  bool release_unused(std::uint32_t device);

  /// Ends destroyed pools whose frees are all past.
  void end_what_is_over();

  /// Whether pools of both locations are the same.
  static bool is_same(const CUmemLocation& a, const CUmemLocation& b) { return key_of(a) == key_of(b); }

  struct Found {
    Pool* pool = nullptr;  ///< nullptr: the address is in no block that is used
    CUdeviceptr start = 0;
    std::uint64_t size = 0;  ///< as asked for
    std::uint64_t id = 0;    ///< of this allocation; no other one has it
  };
  Found find_block(CUdeviceptr address) const;

 private:
  using Key = std::tuple<int, int, bool>;  ///< of a location, for managed memory or not
  static Key key_of(const CUmemLocation& location, bool is_managed = false);

  CUresult take(Pool& pool, std::uint64_t size, const StreamRef& stream, CUdeviceptr* out);
  CUresult add_chunk(Pool& pool, std::uint64_t size);
  bool has_room(Pool& pool, std::uint64_t size);
  bool take_import(Pool& pool, CUdeviceptr chunk, const PoolPointer& pointer);
  CUresult open_chunk(Pool& pool, const PoolPointer& pointer, CUdeviceptr* out);
  CUresult prepare_chunk(Pool& pool, CUdeviceptr start, std::uint64_t size);
  CUdeviceptr chunk_of(const Pool& pool, SlotRef slot) const;
  void remove_chunk(Pool& pool, CUdeviceptr start);
  void end_if_over(Pool& pool);

  Driver& driver_;
  std::map<std::uint64_t, std::unique_ptr<Pool>> pools_;
  std::map<Key, std::uint64_t> defaults_, current_;
  std::map<CUdeviceptr, Pool*> owners_;  ///< of chunks
  std::set<std::uint64_t> leaving_;      ///< generations of the extents that free_allocation will free
  std::uint64_t last_ = 0xf0'0000'0000;  // looks like no host pointer and no small number
};

}  // namespace gpumem::sim
