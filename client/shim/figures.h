#pragma once
#include <cstdint>

extern "C" {
/// Stores the process's limit on the device with this UUID, and its usage, in bytes. False if it borrows
/// nothing there; then both are as before. Exported by libcuda.so.1 for libnvidia-ml.so.1 beside it.
bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used);
}
