#pragma once

namespace gpumem::shim {

/// Whether the loader's cache led to this library (base/system/system_mode.h), and not `gpumem run`. Then the
/// library lies in the system folder, and the process is in no job (GPUMEM_JOB). A process that cannot borrow
/// goes to the driver then, without an error and without words.
bool is_system_mode();

}  // namespace gpumem::shim
