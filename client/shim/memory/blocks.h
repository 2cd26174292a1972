#pragma once
#include <cuda.h>

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

}  // namespace gpumem::shim
