#pragma once
#include <chrono>

namespace gpumem::shim {

/// How long a process waits in system mode for the broker's greeting, before it is left to the driver.
inline constexpr std::chrono::milliseconds kSystemPatience{100};

/// In system mode: whether the process is left to the driver, by the rules of the machine or because it may
/// not connect to the broker. Makes no socket and no thread.
bool is_left_to_driver();

}  // namespace gpumem::shim
