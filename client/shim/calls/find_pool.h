#pragma once
#include <cuda.h>

#include <memory>

#include "client/shim/memory/pools.h"

namespace gpumem::shim {

/// The pool with this handle whose blocks come from a slice: one that the program has made, or the default
/// pool of a device, whose slice is opened if need be. Null with SUCCESS: it is the driver's own.
struct FoundPool {
  CUresult result = CUDA_SUCCESS;
  std::shared_ptr<Pool> pool{};
  CUmemoryPool handle = nullptr;
};
FoundPool find_pool(CUmemoryPool handle);

}  // namespace gpumem::shim
