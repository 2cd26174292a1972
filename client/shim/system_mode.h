#pragma once

namespace gpumem::shim {

/// Whether this library was found by the loader's cache (base/system_mode.h) and not by `gpumem run`: it lies
/// in the system folder, and the process is in no job (GPUMEM_JOB, which `gpumem run` sets). Then nothing
/// that keeps the process from borrowing is an error, and nothing of it is told.
bool is_system_mode();

}  // namespace gpumem::shim
