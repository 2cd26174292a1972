// Where the memory of pools comes from and goes to.
#include "sim/driver/driver.h"
#include "sim/driver/memory/locations.h"
#include "sim/driver/memory/pools.h"

namespace gpumem::sim {

/// Whether the pool may reserve `size` bytes more, perhaps after it has given unused chunks back.
bool Pools::has_room(Pool& pool, std::uint64_t size) {
  const auto fits = [&] {
    return pool.max_size == 0 || (size <= pool.max_size && pool.blocks.reserved() <= pool.max_size - size);
  };
  if (!fits()) trim(pool, 0);
  return fits();
}

CUresult Pools::add_chunk(Pool& pool, std::uint64_t size) {
  if (!has_room(pool, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  Extent* extent = nullptr;
  CUresult result = driver_.create_extent({.device = pool.device,
                                           .kind = Kind::kMemory,
                                           .size = size,
                                           .handle_types = 0,
                                           .numa_node = node_of(pool.location)},
                                          &extent);
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr start = 0;
  result = driver_.map_whole(0, *extent, Use::kPool, &start);
  return result == CUDA_SUCCESS ? prepare_chunk(pool, start, size) : result;
}

CUresult Pools::open_chunk(Pool& pool, const PoolPointer& pointer, CUdeviceptr* out) {
  auto opened = driver_.table->open_by_place(pointer.slot);
  if (!opened || !opened->info.exported || opened->info.device != pool.device)
    return CUDA_ERROR_INVALID_VALUE;
  const ExtentInfo& info = opened->info;
  Extent& extent = driver_.handles->add(info.slot, std::move(opened->fd),
                                        {.device = info.device,
                                         .kind = info.kind,
                                         .size = info.size,
                                         .handle_types = 0,
                                         .numa_node = info.numa_node},
                                        true);
  extent.handles = 1;
  const std::uint64_t size = info.size;
  const CUresult result = driver_.map_whole(0, extent, Use::kPool, out);
  return result == CUDA_SUCCESS ? prepare_chunk(pool, *out, size) : result;
}

/// Gives the devices their access and the pool the chunk.
CUresult Pools::prepare_chunk(Pool& pool, CUdeviceptr start, std::uint64_t size) {
  std::vector<AccessChange> changes;
  for (std::uint32_t device = 0; device < pool.access.size(); ++device) {
    if (pool.access[device] != 0)
      changes.push_back({device, static_cast<CUmemAccess_flags>(pool.access[device])});
  }
  const CUresult result = driver_.space.set_access(start, size, changes);
  if (result != CUDA_SUCCESS) {
    driver_.end_range(start, *driver_.space.find(start).reservation);
    return result;
  }
  pool.blocks.add_chunk(start, size);
  owners_[start] = &pool;
  return CUDA_SUCCESS;
}

/// Where the pool has mapped the extent, or 0.
CUdeviceptr Pools::chunk_of(const Pool& pool, SlotRef slot) const {
  for (const auto& [start, size] : pool.blocks.chunks()) {
    if (driver_.space.find(start).mapping->extent->slot == slot) return start;
  }
  return 0;
}

void Pools::remove_chunk(Pool& pool, CUdeviceptr start) {
  pool.blocks.remove_chunk(start);
  owners_.erase(start);
  driver_.end_range(start, *driver_.space.find(start).reservation);
}

/// Ends a destroyed pool once nothing of it is used and all frees are past.
void Pools::end_if_over(Pool& pool) {
  if (!pool.is_destroyed || pool.blocks.has_used()) return;
  pool.blocks.settle();
  for (const CUdeviceptr chunk : pool.blocks.idle_chunks()) remove_chunk(pool, chunk);
  if (pool.blocks.chunks().empty()) pools_.erase(pool.number);
}

void Pools::end_what_is_over() {
  for (auto it = pools_.begin(); it != pools_.end();) {
    Pool& pool = *(it++)->second;
    end_if_over(pool);
  }
}

}  // namespace gpumem::sim
