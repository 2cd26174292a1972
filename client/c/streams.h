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

/// Sets a mark in the legacy default stream of `ordinal`. The mark waits for all earlier work on the
/// context's blocking streams, and later work on them waits for the mark. Costs one event.
/// Errors  as synchronize.   Threads  any.
Result<void> barrier(int ordinal);

}  // namespace gpumem::c_abi
