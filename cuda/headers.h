#pragma once
// NVIDIA's headers, and what the older ones lack: every difference between header versions is bridged here.
// Only types and constants are used; the functions are found at run time (library.h).
#include <cuda.h>
#include <nvml.h>

static_assert(CUDA_VERSION >= 11080, "CUDA headers 11.8 or newer are needed");
