#pragma once
#include <cuda.h>

#include <new>

namespace gpumem::shim {

/// Calls `call`, which answers a CUresult. No exception passes into the program.
template <class Call>
CUresult guarded(const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;  // of the host
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace gpumem::shim
