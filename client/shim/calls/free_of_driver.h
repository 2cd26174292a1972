#pragma once
#include <cuda.h>

#include "client/shim/memory/process.h"

namespace gpumem::shim {

/// Has `real_call` free `address`, which is no block of a slice, and ends the charge for it if there is one.
template <class Call>
CUresult free_of_driver(CUdeviceptr address, const Call& real_call) {
  Process& process = Process::current();
  if (const auto freed = process.driver_pools().free(address, real_call)) return *freed;
  return process.outside().free(Outside::Name(address), real_call);
}

}  // namespace gpumem::shim
