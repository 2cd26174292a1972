#pragma once
#include <array>
#include <map>
#include <optional>

#include "base/mutex.h"
#include "client/shim/memory/blocks.h"
#include "gpumem/result.h"

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

}  // namespace gpumem::shim
