#pragma once
#include <cuda.h>

#include <map>
#include <memory>

#include "base/mutex.h"
#include "client/shim/memory/device_memory.h"
#include "gpumem/bytes.h"

namespace gpumem::shim {

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

}  // namespace gpumem::shim
