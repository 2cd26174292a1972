#pragma once
#include <cstdint>

extern "C" {
/// Stores the process's limit on the device with this UUID, its own use, and what is free, in bytes. Others
/// of its job may use the rest. False if it borrows nothing there; then all are as before. Exported by
/// libcuda.so.1 for libnvidia-ml.so.1 beside it.
bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used,
                         std::uint64_t* free);
/// Whether the process captures graphs, which a wait for all work of a context would spoil. Exported for the
/// Python package.
bool gpumem_shim_captures();
}
