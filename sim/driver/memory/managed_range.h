#pragma once
#include <cuda.h>

#include <cstdint>
#include <optional>

#include "sim/driver/driver.h"
#include "sim/driver/memory/managed_advice.h"

namespace gpumem::sim {

/// A range of managed memory, as calls name it.
struct ManagedRange {
  CUdeviceptr start = 0;
  std::uint64_t size = 0;
};

/// The managed allocation that holds `address`, of a pool or not; nothing: there is none.
std::optional<ManagedRange> managed_at(Call& driver, CUdeviceptr address);

/// Success if the bytes, at least one, are all of one managed allocation; else CUDA_ERROR_INVALID_VALUE.
CUresult check(Call& driver, const ManagedRange& range);

/// Finds the place that an ordinal, CU_DEVICE_CPU or a location names. Errors  CUDA_ERROR_INVALID_DEVICE,
/// CUDA_ERROR_INVALID_VALUE.
CUresult find_place(Call& driver, CUdevice device, Whereabouts* out);
CUresult find_place(Call& driver, const CUmemLocation& location, Whereabouts* out);

}  // namespace gpumem::sim
