#pragma once
#include <cuda.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "client/shim/memory/blocks/blocks.h"
#include "client/shim/memory/session/session.h"
#include "client/shim/memory/session/settings.h"
#include "gpumem/bytes.h"
#include "gpumem/result.h"

namespace gpumem::client {
class ImportState;
}  // namespace gpumem::client

namespace gpumem::shim {

/// Legacy IPC: the broker's handles, which have the size of the driver's, of blocks that this process has
/// passed on. A handle ends with its block.
/// Threads  any. No lock is held while the broker is waited for.
class Exports {
 public:
  using Bytes64 = std::array<char, 64>;

  /// The handle that names `block`, made at the first call.   Errors  as Allocator::export_handle.   Blocks.
  Result<Bytes64> handle_of(const Block& block);
  /// Whether it names a block of this process.
  bool is_own(const Bytes64& handle) const;
  /// `block` is about to be free: its handle, if there is one, cannot be opened any more.
  void end(const Block& block);

 private:
  std::optional<Bytes64> find(unsigned long long block) const;
  std::optional<Bytes64> take(unsigned long long block);

  mutable Mutex mutex_;
  std::map<unsigned long long, Bytes64> by_block_ GPUMEM_GUARDED_BY(mutex_);
};

/// Legacy IPC by the broker's handles: blocks of other processes that this one has opened.
/// Threads  any. Opening waits for the broker, and for whoever opens another block.
class Imports {
 public:
  using Bytes64 = std::array<char, 64>;
  Imports();
  ~Imports();
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  /// Maps what `handle` names, for `context`; of one handle always the same address. While the broker is
  /// away, waits until `end`. Errors  kNotFound, kInvalidArgument: no handle of the broker's; as
  /// ImportState::open.
  Result<CUdeviceptr> open(Session& session, const Bytes64& handle, CUcontext context,
                           WaitPolicy::Clock::time_point end);
  /// Undoes one open(), of `context` if there is one. The last one unmaps. False: nothing is open there.
  bool close(CUdeviceptr address, CUcontext context);
  /// Undoes what `context` has opened.
  void ended(CUcontext context);
  /// What ends with `from` ends with `to` instead.
  void move(CUcontext from, CUcontext to);

  /// From now on copies of the device with `ordinal` reach what is open and what will be, of its peers.
  void allow(int ordinal);

  /// A block as its owner named it. It may have several extents.
  struct Block {
    CUdeviceptr at = 0;
    Bytes bytes;
  };
  /// The block that `address` lies in.
  std::optional<Block> find(CUdeviceptr address) const;
  /// Whether `address` lies in the extents of a block, of which others may have parts.
  bool has_address(CUdeviceptr address) const;

 private:
  struct Open;
  /// The address of what is open by `handle`, which is opened once more.
  std::optional<CUdeviceptr> reopen(const Bytes64& handle, CUcontext context);

  Mutex opening_;  ///< one handle is mapped once. Taken before `mutex_`
  mutable Mutex mutex_;
  std::map<CUdeviceptr, Open> open_ GPUMEM_GUARDED_BY(mutex_);
  std::map<Bytes64, CUdeviceptr> by_handle_ GPUMEM_GUARDED_BY(mutex_);
  std::vector<int> users_ GPUMEM_GUARDED_BY(mutex_);  ///< devices
};

}  // namespace gpumem::shim
