#pragma once
#include <cstdint>

namespace gpumem::sim {

/// Attribute `number` (CUdevice_attribute) of device `index` of the machine, which sits where device_model
/// says; 0 for those that are not listed. Hardware figures are constants in the likeness of an H200; a memory
/// feature counts as supported only if it is simulated.
int device_attribute(int number, std::uint32_t index);

}  // namespace gpumem::sim
