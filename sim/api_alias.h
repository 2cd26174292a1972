#pragma once
#include <cuda.h>

/// Exports `target`, defined in the same file, under the further name `name`. The real driver has variants
/// for the per-thread default stream (_ptds, _ptsz) and for older headers; where all streams are synchronous
/// they are one function.
#define GPUMEM_SIM_ALIAS(name, target) \
  extern "C" decltype(target) name __attribute__((alias(GPUMEM_SIM_TEXT(target))))
#define GPUMEM_SIM_TEXT(target) GPUMEM_SIM_TEXT_(target)
#define GPUMEM_SIM_TEXT_(target) #target
