#pragma once
#include <optional>
#include <vector>

#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "daemon/core/memory/job.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// An extent in the broker's hands: never mapped. The descriptor is what clients are sent.
struct HeldExtent {
  core::Extent extent;
  cuda::Allocation allocation;  ///< none: adopted from the broker before, or of the host store
  UniqueFd descriptor;
  std::optional<cuda::FabricHandle> fabric{};  ///< where the device has them, unless the driver refused
  LeaseId lease{};                             ///< that it is lent as
  bool stored = false;                         ///< the service manager keeps a descriptor of it, too
  bool is_shared_file = false;                 ///< of the host store (host_file.h)
};

/// Makes the extents of one device, and destroys them.
/// Threads  one: the device's worker.   Blocks.
class ExtentSource {
 public:
  using Proof = std::optional<core::Job::Step::Proof>;

  virtual ~ExtentSource() = default;

  /// Errors  kResourceExhausted: there is no more memory; the system's.
  virtual Result<HeldExtent> create(const core::Extent& extent) = 0;
  /// An extent that the broker before has made. Its holder has the descriptor until destroy().
  virtual void adopt(const core::Extent& extent, int descriptor) = 0;
  /// The used and the free bytes now; nothing: they are not known.
  virtual std::optional<cuda::DeviceMemory> memory() = 0;

  /// Destroys the extents of one step. Returns false if the step has a proof by use, and the memory of its
  /// lease may still be used.
  virtual bool destroy(std::vector<HeldExtent> extents, const Proof& proof) = 0;
  /// The creations of the step with `proof`, which destroy() has not refused, are over. `all`  none failed.
  virtual void note_created(const Proof& proof, bool all) = 0;
};

}  // namespace gpumem::host
