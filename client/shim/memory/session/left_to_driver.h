#pragma once

namespace gpumem::shim {

/// In system mode: whether the process is left to the driver, by the rules of the machine or because it may
/// not connect to the broker. Makes no socket and no thread.
bool is_left_to_driver();

}  // namespace gpumem::shim
