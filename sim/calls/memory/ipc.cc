// Legacy sharing of cuMemAlloc memory with other processes, by a handle of 64 bytes.
#include <cuda.h>

#include <cstring>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

constexpr std::uint64_t kMagic = 0x6d69732d63706967;  // "gipc-sim"

/// What the 64 bytes hold.
struct SharedPlace {
  std::uint64_t magic = kMagic;
  std::uint64_t generation = 0;
  std::uint32_t index = 0;
  std::uint32_t device = 0;
  std::uint64_t size = 0;
};
static_assert(sizeof(SharedPlace) <= sizeof(CUipcMemHandle));

/// The address where this process has the extent open already, or 0.
CUdeviceptr opened_at(Call& driver, SlotRef slot) {
  for (const auto& [address, count] : driver->opened) {
    if (driver->space.find(address).mapping->extent->slot == slot) return address;
  }
  return 0;
}

CUresult open(Call& driver, Context& context, const SharedPlace& place, bool by_peers, CUdeviceptr* out) {
  const SlotRef slot{place.index, place.generation};
  auto opened = driver->table->open_by_place(slot);
  if (!opened || opened->info.size != place.size) return CUDA_ERROR_INVALID_VALUE;
  if (opened->info.creator == this_process()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::uint32_t here = driver->device(context.ordinal);
  if (here != opened->info.device && !by_peers) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUdeviceptr address = opened_at(driver, slot); address != 0) {
    ++driver->opened[address];
    *out = address;
    return CUDA_SUCCESS;
  }
  const Table::Request request{
      .device = opened->info.device, .kind = Kind::kMemory, .size = opened->info.size, .handle_types = 0};
  Extent& extent = driver->handles->add(slot, std::move(opened->fd), request, true);
  extent.handles = 1;
  const CUresult result = driver->map_whole(context.id, extent, Use::kOpened, out);
  if (result != CUDA_SUCCESS) return result;
  driver->opened[*out] = 1;
  return driver->space.set_access(*out, place.size, {{here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}});
}

}  // namespace

CUresult api::cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  const bool is_allocation = found.mapping != nullptr && found.reservation->use == Use::kAllocation;
  if (out == nullptr || !is_allocation) return CUDA_ERROR_INVALID_VALUE;
  Extent& extent = *found.mapping->extent;
  if (!driver->table->mark_exported(extent.slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  extent.is_exported = true;
  const SharedPlace place{.generation = extent.slot.generation,
                          .index = extent.slot.index,
                          .device = extent.device,
                          .size = extent.size};
  *out = {};
  std::memcpy(out->reserved, &place, sizeof place);
  return CUDA_SUCCESS;
}

CUresult api::cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle ipc, unsigned int flags) {
  return with_current([&](Call& driver, Context& context) {
    SharedPlace place;
    std::memcpy(&place, ipc.reserved, sizeof place);
    const bool is_valid =
        (flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) == 0 && place.magic == kMagic;
    if (out == nullptr || !is_valid) return CUDA_ERROR_INVALID_VALUE;
    return open(driver, context, place, (flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0, out);
  });
}
CUresult api::cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle ipc, unsigned int flags) {
  return api::cuIpcOpenMemHandle_v2(out, ipc, flags);
}

CUresult api::cuIpcCloseMemHandle(CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->opened.find(address);
  if (found == driver->opened.end()) return CUDA_ERROR_INVALID_VALUE;
  driver.wait(driver->streams.pending_in(driver->space.find(address).reservation->owner));
  const auto count = driver->opened.find(address);
  if (count == driver->opened.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--count->second > 0) return CUDA_SUCCESS;
  driver->end_range(address, *driver->space.find(address).reservation);
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
