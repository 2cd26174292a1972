#pragma once

namespace gpumem::shim {

/// The shim's function in place of the real driver's at `address`; `address` itself if that one is not
/// replaced. Threads  any; no lock. The first use looks up the real address of every replaced call.
void* replacement_of(void* address);

}  // namespace gpumem::shim
