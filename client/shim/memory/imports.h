#pragma once
#include <cuda.h>

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "client/shim/memory/session.h"
#include "gpumem/result.h"

namespace gpumem::client {
class ImportState;
}  // namespace gpumem::client

namespace gpumem::shim {

/// Legacy IPC by the broker's handles, which have the size of the driver's: blocks that this process has
/// passed on, and blocks of others that it has opened. Threads  any. Opening waits for the broker.
class Imports {
 public:
  using Bytes64 = std::array<char, 64>;
  Imports();
  ~Imports();
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  /// The handle that names the block `id`, made by `make` at the first call.
  template <class Make>
  Result<Bytes64> handle_of(unsigned long long id, const Make& make) {
    const MutexLock lock(mutex_);
    if (const auto known = exported_.find(id); known != exported_.end()) return known->second;
    auto made = make();
    if (made) exported_.emplace(id, *made);
    return made;
  }
  bool is_own(const Bytes64& handle) const;

  /// Maps what `handle` names; of one handle always the same address.
  /// Errors  kNotFound, kInvalidArgument: no handle of the broker's; as ImportState::open.
  Result<CUdeviceptr> open(Session& session, const Bytes64& handle);
  /// Undoes one open(). The last one unmaps. False: nothing is open there.
  bool close(CUdeviceptr address);

 private:
  struct Open;
  mutable Mutex mutex_;
  std::map<unsigned long long, Bytes64> exported_ GPUMEM_GUARDED_BY(mutex_);
  std::map<Bytes64, Open> open_ GPUMEM_GUARDED_BY(mutex_);
};

}  // namespace gpumem::shim
