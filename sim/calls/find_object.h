#pragma once
#include "sim/driver/driver.h"

namespace gpumem::sim {

/// Finds the current context for `act(driver, context)`, or answers why there is none.
template <class Act>
CUresult with_current(Act act) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  const CUresult result = driver->current(&context);
  return result == CUDA_SUCCESS ? act(driver, *context) : result;
}

/// Runs `act` with the context `named`; nullptr names the current one.
template <class Act>
CUresult with_context(CUcontext named, Act act) {
  if (named == nullptr) return with_current(act);
  Call driver;
  if (!driver) return driver.error();
  Context* const context = driver->contexts.find(named);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : act(driver, *context);
}

/// Finds the pool that `named` names for `act(driver, pool)`, or answers that there is none.
template <class Act>
CUresult with_pool(CUmemoryPool named, Act act) {
  Call driver;
  if (!driver) return driver.error();
  Pool* const pool = driver->pools.find(named);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : act(driver, *pool);
}

}  // namespace gpumem::sim
