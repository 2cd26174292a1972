#include "sim/driver/managed_range.h"

#include <sched.h>

namespace gpumem::sim {
namespace {

constexpr int kCurrentHostNode = 4;  // CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT

int node_of_this_thread() {
  unsigned cpu = 0, node = 0;
  return ::getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : 0;
}

}  // namespace

CUresult check(Call& driver, const ManagedRange& range) {
  const auto found = driver->space.find(range.start);
  const bool is_managed = found.reservation != nullptr && found.reservation->use == Use::kManaged;
  if (!is_managed || range.size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t left = found.reservation->size - (range.start - found.range_base);
  return range.size <= left ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult find_place(Call& driver, CUdevice device, Whereabouts* out) {
  if (device != CU_DEVICE_CPU && !driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *out = device == CU_DEVICE_CPU ? Whereabouts{Whereabouts::kHost, 0}
                                 : Whereabouts{Whereabouts::kDevice, device};
  return CUDA_SUCCESS;
}

CUresult find_place(Call& driver, const CUmemLocation& location, Whereabouts* out) {
  switch (static_cast<int>(location.type)) {
    case Whereabouts::kDevice:
      if (!driver->has_device(location.id)) return CUDA_ERROR_INVALID_DEVICE;
      *out = {Whereabouts::kDevice, location.id};
      return CUDA_SUCCESS;
    case Whereabouts::kHost: *out = {Whereabouts::kHost, 0}; return CUDA_SUCCESS;
    case Whereabouts::kHostNode:
      if (location.id < 0) return CUDA_ERROR_INVALID_VALUE;
      *out = {Whereabouts::kHostNode, location.id};
      return CUDA_SUCCESS;
    case kCurrentHostNode: *out = {Whereabouts::kHostNode, node_of_this_thread()}; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace gpumem::sim
