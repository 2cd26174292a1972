#pragma once
// In these files the names of calls mean themselves, not their newest version.
#ifndef __CUDA_API_VERSION_INTERNAL
#error define __CUDA_API_VERSION_INTERNAL first
#endif
#include <cuda.h>
#include <new>

#include "base/thread_guards.h"
#include "client/shim/undeclared.h"

/// The shim's functions for the calls of calls.def, with the exported names and signatures.
namespace gpumem::shim::calls {
#define GPUMEM_SHIM_CALL(name, treatment, why) decltype(::name) name;
#include "client/shim/calls.def"
#undef GPUMEM_SHIM_CALL
}  // namespace gpumem::shim::calls

namespace gpumem::shim {

/// Calls `call`, which answers a CUresult. No exception passes into the program, and the thread is not
/// cancelled meanwhile.
template <class Call>
CUresult guarded(const Call& call) noexcept {
  const NotCancelled whole;
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;  // of the host
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

}  // namespace gpumem::shim
