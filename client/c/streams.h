#pragma once
#include "gpumem/allocator.h"

// What adapters need of streams beyond the allocator's own order.

namespace gpumem::c_abi {

/// Returns when the work given to `stream` so far is done.
/// `ordinal`  of the stream's device, for the default streams.
/// Errors  kFailedPrecondition (forked; a graph is being captured), kInternal (the driver).
/// Threads  any.   Blocks.
Result<void> synchronize(int ordinal, StreamHandle stream);

/// Puts a mark into the legacy default stream of `ordinal`: it waits for all work given so far to blocking
/// streams of the context, and what is given to them from now on waits for it. Costs one event.
/// Errors  as synchronize.   Threads  any.
Result<void> barrier(int ordinal);

}  // namespace gpumem::c_abi
