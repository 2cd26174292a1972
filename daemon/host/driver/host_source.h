#pragma once
#include <map>
#include <utility>
#include <vector>

#include "daemon/host/driver/extent_source.h"

namespace gpumem::host {

/// The host store: memory of the machine, each extent a file without a name (memfd). It takes memory of the
/// machine page by page, when a client first touches the pages, and these count for the client's cgroup.
///
/// A returned extent of a private slice is truncated to nothing. The file can never grow again, and nobody
/// can seal it otherwise, so it has no bytes for anybody from then on: a process that still maps it gets
/// SIGBUS. A shared one stays as it is, and is not proved free, until no other process has it. The kernel
/// frees pages that a device or the kernel itself has pinned when they are unpinned.
class HostSource final : public ExtentSource {
 public:
  Result<HeldExtent> create(const core::Extent& extent) override;
  /// Free is the memory that the kernel can give without swapping (MemAvailable), less the pages of extents
  /// that nobody has touched yet.
  std::optional<cuda::DeviceMemory> memory() override;
  void adopt(const core::Extent& extent, int descriptor) override {
    made_[extent.id] = {descriptor, extent.size};
  }
  /// The holders keep the descriptors until it has succeeded. If it has not, it is called again with the same
  /// extents.
  bool destroy(std::vector<HeldExtent> extents, const Proof& proof) override;
  void note_created(const Proof&, bool) override {}

 private:
  Bytes untouched() const;

  /// The extents that were created here or adopted, and not destroyed. The descriptors belong to their
  /// holders.
  std::map<ExtentId, std::pair<int, Bytes>> made_;
};

/// The memory of this machine.
Bytes memory_of_machine();
/// How much of it is used. Free is what the kernel can give without swapping (MemAvailable). Nothing: the
/// kernel does not tell.
std::optional<cuda::DeviceMemory> use_of_machine();

}  // namespace gpumem::host
