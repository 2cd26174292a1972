#pragma once
#include <map>
#include <vector>

#include "daemon/host/driver/extent_source.h"

namespace gpumem::host {

/// The host store as memory that the driver allocates on NUMA nodes of the host. It is pinned and zeroed when
/// it is made, for all processes together. Extents are made on the node with the most free memory.
///
/// The driver frees an extent when no process has it any more, but tells nobody. So an extent counts as free
/// when it is destroyed and every process that was sent a descriptor of it has ended.
class HostDriverSource final : public ExtentSource {
 public:
  /// `driver`  outlives it. `nodes`  on which the driver has been tried.
  HostDriverSource(const cuda::Driver& driver, std::vector<int> nodes)
      : driver_(driver), nodes_(std::move(nodes)) {}

  Result<HeldExtent> create(const core::Extent& extent) override;
  void adopt(const core::Extent&, int) override {}
  void note_holder(LeaseId lease, ProcessHandle process) override {
    unproved_[lease].push_back(std::move(process));
  }
  std::optional<cuda::DeviceMemory> memory() override;
  bool destroy(std::vector<HeldExtent> extents, const Proof& proof) override;
  void note_created(const Proof&, bool) override {}

 private:
  std::vector<int> nodes_by_free_memory() const;

  const cuda::Driver& driver_;
  const std::vector<int> nodes_;
  std::map<LeaseId, std::vector<ProcessHandle>> unproved_;  ///< processes that may have returned memory
};

}  // namespace gpumem::host
