#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/machine/table.h"

namespace gpumem::sim {

/// The devices that CUDA_VISIBLE_DEVICES lets a process see, in its order: ordinals and GPU-UUIDs (a
/// beginning of one is enough if no other starts so). As on the real driver the first item that names no
/// device ends the list, and a device named twice empties it. `list` nullptr: all.
std::vector<std::uint32_t> visible_devices(const char* list, const Table& table);

/// Attribute `number` (CUdevice_attribute) of device `index` of the machine, which sits where device_model
/// says; 0 for those that are not listed. Hardware figures are constants in the likeness of an H200; a memory
/// feature counts as supported only if it is simulated.
int device_attribute(int number, std::uint32_t index);

}  // namespace gpumem::sim
