#pragma once
#include "sim/driver/driver.h"

namespace gpumem::sim {

/// Finds the pool that `named` names for `act(driver, pool)`, or answers that there is none.
template <class Act>
CUresult with_pool(CUmemoryPool named, Act act) {
  Call driver;
  if (!driver) return driver.error();
  Pool* const pool = driver->pools.find(named);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : act(driver, *pool);
}

}  // namespace gpumem::sim
