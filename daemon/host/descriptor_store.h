#pragma once
#include <span>

#include "base/ids.h"

namespace gpumem::host {

/// Keeps descriptors of lent memory beyond the end of the broker's process: a service manager.
/// Threads  any. Blocks.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;

  /// Keeps a duplicate of `descriptor`, for the next broker. It holds on to the memory.
  virtual void keep(LeaseId lease, int descriptor) const = 0;
  /// Lets go of what it keeps for these leases, if anything. Returns when it has, or after some seconds.
  /// False if it could not be told: it still keeps what it kept.
  [[nodiscard]] virtual bool forget(std::span<const LeaseId> leases) const = 0;
};

}  // namespace gpumem::host
