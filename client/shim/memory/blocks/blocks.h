#pragma once

#include <cuda.h>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "gpumem/bytes.h"

namespace gpumem::shim {

class DeviceMemory;
class Pool;

/// An allocation of the program by cuMemAlloc or cuMemAllocAsync.
struct Block {
  CUdeviceptr at = 0;
  Bytes bytes;  ///< as asked for
  DeviceMemory* memory = nullptr;
  CUcontext context = nullptr;   ///< the block ends with this context; null: with none
  std::shared_ptr<Pool> pool{};  ///< null: of none
  unsigned long long id = 0;     ///< unique in the process
  bool is_synchronous = false;   ///< CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as the program set it
  bool holds(CUdeviceptr address) const { return address - at < bytes.count; }
};

/// The blocks in use, by address.
/// Threads  any.
class Blocks {
 public:
  void add(Block block);
  /// Takes back what take() answered, unchanged.
  void put_back(const Block& block);
  /// Removes the block that begins at `address`. Of several threads that free it, one gets it.
  std::optional<Block> take(CUdeviceptr address);
  /// The block that `address` lies in.
  std::optional<Block> find(CUdeviceptr address) const;
  /// Notes what the program has set of the block that begins at `address`.
  void set_synchronous(CUdeviceptr address, bool is_synchronous);
  /// Removes the blocks that end with `context`.
  std::vector<Block> take_of(CUcontext context);
  /// The blocks that end with `from` end with `to` instead.
  void move(CUcontext from, CUcontext to);

 private:
  mutable Mutex mutex_;
  std::map<CUdeviceptr, Block> blocks_ GPUMEM_GUARDED_BY(mutex_);
  /// Above those of the driver, which counts from 1.
  unsigned long long last_id_ GPUMEM_GUARDED_BY(mutex_) = 1ULL << 62;
};

/// A pool that the program allocates from. Its handle is that of a pool of the real driver, which stays empty
/// but for what is captured into graphs, so that every call takes the handle. The blocks come from the slice.
/// Threads  any.
class Pool {
 public:
  /// `most`  that may be in use; zero: what the slice has.
  Pool(CUmemoryPool handle, DeviceMemory& memory, Bytes most)
      : handle_(handle), memory_(memory), most_(most) {}

  CUmemoryPool handle() const { return handle_; }
  DeviceMemory& memory() const { return memory_; }

  /// False: it would pass the pool's own size.
  [[nodiscard]] bool use(Bytes bytes);
  void free(Bytes bytes);
  struct Figures {
    Bytes used;
    Bytes most_used;  ///< since the beginning, or reset_most_used()
  };
  Figures figures() const;
  void reset_most_used();

 private:
  const CUmemoryPool handle_;
  DeviceMemory& memory_;
  const Bytes most_;
  mutable Mutex mutex_;
  Figures figures_ GPUMEM_GUARDED_BY(mutex_);
};

/// The pools whose blocks come from slices, by handle. Others, which can be passed on or are not of a device,
/// stay the driver's own.
/// Threads  any.
class Pools {
 public:
  void add(CUmemoryPool handle, DeviceMemory& memory, Bytes most);
  /// Removes it. Null: not known.
  std::shared_ptr<Pool> take(CUmemoryPool handle);
  /// Undoes take().
  void put_back(const std::shared_ptr<Pool>& pool);
  /// Null: not known.
  std::shared_ptr<Pool> find(CUmemoryPool handle) const;
  /// The one with this handle, made if it is the default pool of `memory`'s device. Null: not known.
  std::shared_ptr<Pool> find_or_default(CUmemoryPool handle, DeviceMemory& memory);

 private:
  mutable Mutex mutex_;
  std::map<CUmemoryPool, std::shared_ptr<Pool>> pools_ GPUMEM_GUARDED_BY(mutex_);
};

/// The current pool of the device that a stream of the program is of, as the calling thread remembers it. The
/// driver is asked again after forget().
/// Threads  any.
class CurrentPool {
 public:
  /// Before a stream or a context ends, and after a device's current pool has changed.
  static void forget() { generation_.fetch_add(1, std::memory_order_acq_rel); }
  /// For remember(): what the thread asks the driver after this is of this time.
  static std::uint64_t now() { return generation_.load(std::memory_order_acquire); }
  /// Null: not known.
  static CUmemoryPool find(CUstream stream);
  static void remember(CUstream stream, CUmemoryPool pool, std::uint64_t asked);

 private:
  static constinit std::atomic<std::uint64_t> generation_;
};

}  // namespace gpumem::shim
