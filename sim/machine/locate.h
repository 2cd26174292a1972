#pragma once
#include "gpumem/result.h"
#include "sim/machine/machine.h"

namespace gpumem::sim {

/// The machine that this library serves: the one in $GPUMEM_SIM_MACHINE if that is set, else the one in the
/// folder that the library was loaded from. Errors  kNotFound: neither is a machine; the message says how to
/// make one. kInvalidArgument: damaged.
Result<Machine> locate_machine();

}  // namespace gpumem::sim
