#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "cuda/memory.h"
#include "cuda/nvml.h"
#include "daemon/core/memory/job.h"
#include "gpumem/result.h"

namespace gpumem::host {

/// A handle of a process, by which its end is seen. An invalid one: the kernel has none, so the process never
/// counts as ended.
using ProcessHandle = std::shared_ptr<const UniqueFd>;

/// An extent in the broker's hands: never mapped. The descriptor is what clients are sent.
struct HeldExtent {
  core::Extent extent;
  cuda::Allocation allocation;  ///< none: adopted from the broker before, or a file of the host store
  UniqueFd descriptor;
  std::optional<cuda::FabricHandle> fabric{};  ///< where the device has them, unless the driver refused
  LeaseId lease{};                             ///< that it is lent as
  bool stored = false;                         ///< the service manager keeps a descriptor of it, too
  bool is_shared_file = false;                 ///< of the host store (host_file.h)
  bool is_of_host_driver = false;              ///< the driver's memory of the host
  std::vector<ProcessHandle> holders{};        ///< of such memory: processes that were sent its descriptor
  bool is_returned = false;                    ///< a file of the host store that is not proved free yet
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
  /// At the broker before, the process may have got memory of the lease, whose extent is not held here.
  virtual void note_holder(LeaseId, ProcessHandle) {}
  /// The used and the free bytes now; nothing: they are not known.
  virtual std::optional<cuda::DeviceMemory> memory() = 0;

  /// Destroys the extents of one step, with their descriptors where they have some. Returns false if the step
  /// has a proof by use, and the memory of its lease may still be used.
  virtual bool destroy(std::vector<HeldExtent> extents, const Proof& proof) = 0;
  /// The creations of the step with `proof`, which destroy() has not refused, are over. `all`  none failed.
  virtual void note_created(const Proof& proof, bool all) = 0;
};

}  // namespace gpumem::host
