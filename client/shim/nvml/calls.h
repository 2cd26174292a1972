#pragma once
// In these files the names of calls mean themselves, not their newest version.
#ifndef NVML_NO_UNVERSIONED_FUNC_DEFS
#error define NVML_NO_UNVERSIONED_FUNC_DEFS first
#endif
#include <nvml.h>

/// What the shim does for the calls of NVML in calls.def.
namespace gpumem::shim::calls {
#define GPUMEM_SHIM_CALL(name, treatment, why) decltype(::name) name;
#include "client/shim/nvml/calls.def"
#undef GPUMEM_SHIM_CALL
}  // namespace gpumem::shim::calls
