// How much memory a device has, for nvidia-smi, and for programs that ask how much they have.
#include <algorithm>

#include "client/shim/nvml/calls.h"
#include "client/shim/nvml/device_view.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::nvmlDeviceGetMemoryInfo)> real_memory_info("nvmlDeviceGetMemoryInfo");

/// Puts the process's view in place of the driver's. True if that is a slice. Of a device, memory that the
/// broker has created and nobody borrows is free.
template <class Memory>
bool show(nvmlDevice_t device, Memory& memory) {
  const auto view = DeviceView::of(device);
  if (view.slice) {
    memory.total = view.slice->total;
    memory.used = view.slice->total - view.slice->free;
    memory.free = view.slice->free;
  } else if (view.listing) {
    const auto idle = std::min<unsigned long long>(view.listing->idle, memory.used);
    memory.used -= idle;
    memory.free += idle;
  }
  return view.slice.has_value();
}

}  // namespace

nvmlReturn_t calls::nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  const nvmlReturn_t result = real_memory_info(device, memory);
  if (result == NVML_SUCCESS) show(device, *memory);
  return result;
}

#ifdef nvmlMemory_v2
namespace {
constinit RealCall<decltype(::nvmlDeviceGetMemoryInfo_v2)> real_memory_info_v2("nvmlDeviceGetMemoryInfo_v2");
}  // namespace

nvmlReturn_t calls::nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  const nvmlReturn_t result = real_memory_info_v2(device, memory);
  if (result != NVML_SUCCESS || memory->version != nvmlMemory_v2) return result;  // or of a later form
  // Reserved memory belongs to the device and is no part of a slice.
  if (show(device, *memory)) memory->reserved = 0;
  return result;
}
#endif

}  // namespace gpumem::shim
