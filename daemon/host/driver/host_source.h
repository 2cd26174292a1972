#pragma once
#include <map>
#include <vector>

#include "daemon/host/driver/extent_source.h"

namespace gpumem::host {

/// The host store: memory of the machine, each extent a file without a name (memfd). It takes memory of the
/// machine page by page, when a client first touches the pages, and these count for the client's cgroup.
///
/// An extent is proved free by the kernel: F_SEAL_WRITE is refused as long as somebody maps the file for
/// writing or pins its pages. The file is then truncated to nothing, so whoever still maps it for reading
/// gets SIGBUS, and never the bytes of others. A file that cannot be sealed stays with its lease.
class HostSource final : public ExtentSource {
 public:
  Result<HeldExtent> create(const core::Extent& extent) override;
  /// Free is the memory that the kernel can give without swapping (MemAvailable), less the pages of extents
  /// that nobody has touched yet.
  std::optional<cuda::DeviceMemory> memory() override;
  bool destroy(std::vector<HeldExtent> extents, const Proof& proof) override;
  void note_created(const Proof&, bool) override {}

 private:
  Bytes untouched() const;

  /// The extents that were created here and not destroyed. The descriptors belong to their holders.
  std::map<ExtentId, std::pair<int, Bytes>> made_;
  std::map<LeaseId, std::vector<HeldExtent>> unproved_;
};

/// The memory of this machine.
Bytes memory_of_machine();

}  // namespace gpumem::host
