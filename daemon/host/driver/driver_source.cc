#include "daemon/host/driver/driver_source.h"

#include <cerrno>
#include <utility>

#include "base/crash_point.h"
#include "base/log.h"

namespace gpumem::host {

Result<HeldExtent> DriverSource::create(const core::Extent& extent) {
  auto allocation = allocate(extent.size);
  if (!allocation) return allocation.error();
  if (fails_at(CrashPoint::kExtentExport)) return errno_error(EMFILE, "cuMemExportToShareableHandle");
  auto descriptor = allocation->export_descriptor();
  if (!descriptor) return descriptor.error();
  HeldExtent held{extent, std::move(*allocation), std::move(*descriptor)};
  if (types_ == cuda::HandleTypes::kDescriptorAndFabric) {
    if (auto handle = held.allocation.export_fabric()) held.fabric = *handle;
  }
  proofs_.note_created(extent.size);
  return held;
}

// An IMEX channel may go away while the broker runs: then the pool goes on without fabric handles.
Result<cuda::Allocation> DriverSource::allocate(Bytes size) const {
  if (fails_at(CrashPoint::kExtentCreate)) return errno_error(ENOMEM, "cuMemCreate");
  auto made = cuda::Allocation::create(driver_, device_.ordinal, size, types_);
  if (made || types_ == cuda::HandleTypes::kDescriptor || made.error().code == Code::kResourceExhausted)
    return made;
  return cuda::Allocation::create(driver_, device_.ordinal, size);
}

bool DriverSource::destroy(std::vector<HeldExtent> extents, const Proof& proof) {
  const bool by_use = proof && proof->by_use;
  const bool has_destroyed = !extents.empty();
  if (by_use) proofs_.begin(used());
  // The descriptor first: with the handle our last hold on the memory goes.
  for (HeldExtent& extent : extents) {
    proofs_.note_destroyed(extent.extent.size);
    extent.descriptor.reset();
  }
  extents.clear();
  return !by_use || proofs_.end(*proof, has_destroyed, used());
}

void DriverSource::note_created(const Proof& proof, bool all) {
  if (!proof || proof->by_use) return;
  const bool needs_used = !all || proofs_.has_failed(proof->lease);
  proofs_.note_outcome(*proof, all, needs_used ? used() : std::nullopt);
}

std::optional<Bytes> DriverSource::used() {
  const auto memory = this->memory();
  return memory ? std::optional(memory->used) : std::nullopt;
}

std::optional<cuda::DeviceMemory> DriverSource::memory() {
  if (nvml_ == nullptr) return std::nullopt;
  const auto memory = nvml_->memory(device_.uuid);
  if (!std::exchange(has_warned_, !memory.has_value()) && !memory)
    spdlog::warn("{}: {}; assuming that nobody else uses it", to_string(device_.uuid),
                 memory.error().message);
  return memory ? std::optional(*memory) : std::nullopt;
}

}  // namespace gpumem::host
