// NVML's memory figures: those of the slice, for nvidia-smi and for programs that ask how much memory they
// have.
#include "client/shim/nvml/calls.h"
#include "client/shim/nvml/slice_figures.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::nvmlDeviceGetMemoryInfo)> real_memory_info("nvmlDeviceGetMemoryInfo");

/// True if `memory` tells of a slice now.
template <class Memory>
bool show_slice(nvmlDevice_t device, Memory& memory) {
  const auto slice = slice_figures(device);
  if (!slice) return false;
  memory.total = slice->total;
  memory.used = slice->used;
  memory.free = slice->total - slice->used;
  return true;
}

}  // namespace

nvmlReturn_t calls::nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const nvmlReturn_t result = real_memory_info(device, memory);
  if (result == NVML_SUCCESS) show_slice(device, *memory);
  return result;
}

#ifdef nvmlMemory_v2
namespace {
constinit RealCall<decltype(::nvmlDeviceGetMemoryInfo_v2)> real_memory_info_v2("nvmlDeviceGetMemoryInfo_v2");
}  // namespace

nvmlReturn_t calls::nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const nvmlReturn_t result = real_memory_info_v2(device, memory);
  // Reserved memory belongs to the device and is no part of a slice.
  if (result == NVML_SUCCESS && show_slice(device, *memory)) memory->reserved = 0;
  return result;
}
#endif

}  // namespace gpumem::shim
