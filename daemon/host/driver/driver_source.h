#pragma once
#include "daemon/core/memory/use_proofs.h"
#include "daemon/host/driver/extent_source.h"

namespace gpumem::host {

/// The memory of a GPU, by its driver.
class DriverSource final : public ExtentSource {
 public:
  /// `driver`, `nvml`  outlive it. `nvml`  tells how much is free; null: it is not known.
  DriverSource(const cuda::Driver& driver, cuda::Device device, cuda::HandleTypes types,
               const cuda::Nvml* nvml)
      : driver_(driver), device_(std::move(device)), types_(types), nvml_(nvml) {}

  Result<HeldExtent> create(const core::Extent& extent) override;
  void adopt(const core::Extent&, int) override {}
  std::optional<cuda::DeviceMemory> memory() override;
  bool destroy(std::vector<HeldExtent> extents, const Proof& proof) override;
  void note_created(const Proof& proof, bool all) override;

 private:
  std::optional<Bytes> used();
  Result<cuda::Allocation> allocate(Bytes size) const;

  const cuda::Driver& driver_;
  const cuda::Device device_;
  const cuda::HandleTypes types_;
  const cuda::Nvml* const nvml_;
  bool has_warned_ = false;  ///< of the management library, since it last told
  core::UseProofs proofs_;
};

}  // namespace gpumem::host
