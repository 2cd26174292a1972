#include "sim/driver/memory/managed_range.h"

#include <sched.h>

namespace gpumem::sim {
namespace {

constexpr int kCurrentHostNode = 4;  // CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT

int node_of_this_thread() {
  unsigned cpu = 0, node = 0;
  return ::getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : 0;
}

}  // namespace

std::optional<ManagedRange> managed_at(Call& driver, CUdeviceptr address) {
  const auto found = driver->space.find(address);
  if (found.reservation == nullptr) return std::nullopt;
  if (found.reservation->use == Use::kManaged) return ManagedRange{found.range_base, found.reservation->size};
  const Pools::Found block = driver->pools.find_block(address);
  if (block.pool == nullptr || !block.pool->is_managed) return std::nullopt;
  return ManagedRange{block.start, block.size};
}

CUresult check(Call& driver, const ManagedRange& range) {
  const auto found = managed_at(driver, range.start);
  if (!found || range.size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t left = found->size - (range.start - found->start);
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
