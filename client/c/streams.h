#pragma once
#include "gpumem/options.h"
#include "gpumem/result.h"

// Stream operations that the adapters need in addition to the allocator's own order.

namespace gpumem::c_abi {

/// Waits until the work given to `stream` so far is done.
/// `ordinal`  of the stream's device, for the default streams.
/// Errors  kFailedPrecondition (forked; a graph is being captured), kInternal (the driver).
/// Threads  any.   Blocks.
Result<void> synchronize(int ordinal, StreamHandle stream);

}  // namespace gpumem::c_abi
