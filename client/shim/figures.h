#pragma once
#include <cstdint>

extern "C" {
/// What the process may use of the device with this UUID, and what it uses, in bytes. False if it borrows
/// nothing there; then both are as before. Exported by libcuda.so.1 for libnvidia-ml.so.1 beside it.
bool gpumem_shim_figures(const unsigned char uuid[16], std::uint64_t* total, std::uint64_t* used);
}
