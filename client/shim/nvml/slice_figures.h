#pragma once
#include <nvml.h>

#include <cstdint>
#include <optional>

namespace gpumem::shim {

/// The calling process's limit on a device and its usage, in bytes; used <= total.
struct SliceFigures {
  std::uint64_t total = 0;
  std::uint64_t used = 0;
};

/// Nothing if the process borrows no memory of the device, if there is no broker or no libcuda.so.1 of gpumem
/// beside this library, or if $GPUMEM_SHOW_DEVICE is 1: then the device's own figures hold.
std::optional<SliceFigures> slice_figures(nvmlDevice_t device);

}  // namespace gpumem::shim
