#pragma once

namespace gpumem::shim {

/// Whether this library was found by the loader's cache (base/system_mode.h) and not by `gpumem run`: it lies
/// in the system folder, and GPUMEM_RUNTIME_DIR, which `gpumem run` sets, is not set. Then nothing that keeps
/// the process from borrowing is an error, and nothing of it is told.
bool is_system_mode();

}  // namespace gpumem::shim
