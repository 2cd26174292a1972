#pragma once
#include <cuda.h>

#include "sim/driver/transfer.h"

namespace gpumem::sim {

/// The copy that a struct of the program's means; devices are not set but by the third.
/// Errors  CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED: an array.
CUresult read_parameters(const CUDA_MEMCPY2D* parameters, Copy* out);
CUresult read_parameters(const CUDA_MEMCPY3D* parameters, Copy* out);
/// Errors  also CUDA_ERROR_INVALID_CONTEXT.
CUresult read_parameters(const CUDA_MEMCPY3D_PEER* parameters, Copy* out);

/// Sets the devices of both ends. Errors  CUDA_ERROR_INVALID_CONTEXT.
CUresult set_contexts(Copy& copy, CUcontext to, CUcontext from);

/// A struct that means `copy`.
CUDA_MEMCPY3D write_parameters(const Copy& copy);

}  // namespace gpumem::sim
