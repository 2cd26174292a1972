#include "sim/driver/memory/pools.h"

#include <algorithm>

#include "sim/driver/driver.h"
#include "sim/driver/memory/locations.h"

namespace gpumem::sim {
namespace {

std::uint64_t rounded_to_chunks(std::uint64_t size) {
  return (size + kGranularity.count - 1) / kGranularity.count * kGranularity.count;
}

std::uint64_t rounded_to_pages(std::uint64_t size) {
  constexpr std::uint64_t kPage = 4096;
  return (std::max<std::uint64_t>(size, 1) + kPage - 1) / kPage * kPage;
}

void note_highs(Pool& pool) {
  pool.reserved_high = std::max(pool.reserved_high, pool.blocks.reserved());
  pool.used_high = std::max(pool.used_high, pool.blocks.used());
}

}  // namespace

Pool& Pools::create(const Pool& like) {
  static std::uint32_t count = 0;
  const std::uint64_t number = last_ += 16;
  Pool& pool = *pools_.emplace(number, std::make_unique<Pool>(like)).first->second;
  pool.number = number;
  pool.access[pool.device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (pool.is_managed) pool.access.fill(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (!pool.is_imported) {
    const ProcessId self = this_process();
    pool.id = {self.pid, ++count, self.start};
  }
  return pool;
}

Pool* Pools::find(CUmemoryPool named) {
  const auto found = pools_.find(sim::number(named));
  return found == pools_.end() || found->second->is_destroyed ? nullptr : found->second.get();
}

void Pools::destroy(Pool& pool) {
  std::erase_if(current_, [&](const auto& entry) { return entry.second == pool.number; });
  pool.is_destroyed = true;
  end_if_over(pool);
}

/// The host as a whole, and its nodes, each have pools of their own.
Pools::Key Pools::key_of(const CUmemLocation& location, bool is_managed) {
  const bool is_nowhere = location.type == CU_MEM_LOCATION_TYPE_INVALID;
  return {location.type, is_nowhere ? 0 : node_of(location), is_managed};
}

Pool& Pools::default_of(const CUmemLocation& location, bool is_managed) {
  const Key key = key_of(location, is_managed);
  if (const auto found = defaults_.find(key); found != defaults_.end()) return *pools_.at(found->second);
  const bool is_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  Pool& pool = create({.location = location,
                       .device = is_device ? driver_.device(location.id) : layout::kHost,
                       .is_managed = is_managed,
                       .is_default = true});
  defaults_[key] = pool.number;
  return pool;
}

Pool& Pools::current_of(const CUmemLocation& location, bool is_managed) {
  const auto found = current_.find(key_of(location, is_managed));
  return found == current_.end() ? default_of(location, is_managed) : *pools_.at(found->second);
}

void Pools::set_current(const CUmemLocation& location, const Pool& pool) {
  current_[key_of(location, pool.is_managed)] = pool.number;
}

CUresult Pools::allocate(Pool& pool, std::uint64_t size, const StreamRef& stream, CUdeviceptr* out) {
  // A size larger than any device must not reach the rounding, which would overflow.
  const bool is_host = pool.device == layout::kHost;
  const std::uint64_t most = is_host ? std::uint64_t{1} << 46 : driver_.table->total(pool.device);
  if (size > most) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!pool.is_managed) return take(pool, size, stream, out);
  size = rounded_to_pages(size);  // advice is of whole pages
  const CUresult result = take(pool, size, stream, out);
  if (result != CUDA_SUCCESS) return result;
  const Whereabouts preferred{static_cast<Whereabouts::Type>(pool.location.type), pool.location.id};
  driver_.advice.change(*out, size, [&](Advice& advice) { advice.preferred = preferred; });
  return CUDA_SUCCESS;
}

CUresult Pools::take(Pool& pool, std::uint64_t size, const StreamRef& stream, CUdeviceptr* out) {
  const auto suits = [&](const Ticket& freed) {
    if (freed.stream() == 0 || freed.stream() == number_of(*stream)) return true;
    if (pool.follows_events && driver_.streams.is_after(stream, freed)) return true;
    return pool.is_opportunistic && freed.is_done();
  };
  auto taken = pool.blocks.take(size, suits);
  if (!taken && pool.is_opportunistic) {
    pool.blocks.settle();  // joins what is done, which may make room
    taken = pool.blocks.take(size, suits);
  }
  CUresult result = CUDA_SUCCESS;
  if (!taken) {
    result = add_chunk(pool, rounded_to_chunks(Blocks::rounded(size)));
    if (result == CUDA_SUCCESS) taken = pool.blocks.take(size, suits);
  }
  if (!taken && pool.adds_dependencies) {
    taken = pool.blocks.take(size, [](const Ticket&) { return true; });
    if (taken) driver_.streams.submit_short(stream, [] {}, {taken->freed});
  }
  if (!taken) return result;
  note_highs(pool);
  *out = taken->address;
  return CUDA_SUCCESS;
}

CUresult Pools::free(CUdeviceptr address, const Ticket& freed) {
  const Found found = find_block(address);
  if (found.pool == nullptr || found.start != address) return CUDA_ERROR_INVALID_VALUE;
  Pool& pool = *found.pool;
  if (const auto import = pool.imports.find(address); import != pool.imports.end()) {
    if (--import->second > 0) return CUDA_SUCCESS;
    pool.imports.erase(import);
  }
  if (pool.is_managed) driver_.advice.forget(address, found.size);
  pool.blocks.give_back(address, freed);
  end_if_over(pool);
  return CUDA_SUCCESS;
}

CUresult Pools::free_allocation(CUdeviceptr address, const StreamRef& stream) {
  const auto found = driver_.space.find(address);
  const bool is_given = found.mapping != nullptr && (found.reservation->use == Use::kAllocation ||
                                                     found.reservation->use == Use::kManaged);
  if (!is_given || found.range_base != address) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t generation = found.mapping->extent->slot.generation;
  if (leaving_.contains(generation)) return CUDA_ERROR_INVALID_VALUE;
  if (driver_.streams.pending(stream).empty()) return driver_.free(address);
  leaving_.insert(generation);
  driver_.streams.submit(stream, [address, generation] {
    Call driver;
    const auto now = driver->space.find(address);
    const bool is_same = now.mapping != nullptr && now.mapping->extent->slot.generation == generation;
    if (is_same) driver->free(address);
    driver->pools.leaving_.erase(generation);
  });
  return CUDA_SUCCESS;
}

CUresult Pools::import(Pool& pool, const PoolPointer& pointer, CUdeviceptr* out) {
  if (!(pointer.pool == pool.id)) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr known = chunk_of(pool, pointer.slot);
  CUdeviceptr chunk = known;
  if (chunk == 0) {
    if (const CUresult result = open_chunk(pool, pointer, &chunk); result != CUDA_SUCCESS) return result;
  }
  if (!take_import(pool, chunk, pointer)) {
    if (known == 0) remove_chunk(pool, chunk);
    return CUDA_ERROR_INVALID_VALUE;
  }
  note_highs(pool);
  *out = chunk + pointer.offset;
  return CUDA_SUCCESS;
}

/// Counts one import more of the block that `pointer` tells of; false if the chunk has no such block.
bool Pools::take_import(Pool& pool, CUdeviceptr chunk, const PoolPointer& pointer) {
  const std::uint64_t size = pool.blocks.chunks().at(chunk);
  if (pointer.offset >= size || pointer.size > size - pointer.offset) return false;
  const CUdeviceptr address = chunk + pointer.offset;
  if (!pool.imports.contains(address)) {
    pool.blocks.settle();
    if (!pool.blocks.take_at(address, pointer.size)) return false;
  } else if (find_block(address).size != pointer.size) {
    return false;
  }
  ++pool.imports[address];
  return true;
}

CUresult Pools::set_access(Pool& pool, const std::vector<AccessChange>& changes) {
  for (const auto& [start, size] : pool.blocks.chunks()) {
    const CUresult result = driver_.space.set_access(start, size, changes);
    if (result != CUDA_SUCCESS) return result;
  }
  for (const AccessChange& change : changes) {
    pool.access[change.device] = static_cast<std::uint8_t>(change.flags);
  }
  return CUDA_SUCCESS;
}

void Pools::synchronized() {
  for (const auto& [id, pool] : pools_) {
    pool->blocks.settle();
    trim(*pool, pool->release_threshold);
  }
  end_what_is_over();
  driver_.graph_memory.collect();
}

void Pools::trim(Pool& pool, std::uint64_t keep) {
  if (pool.keeps_memory() || pool.blocks.reserved() <= keep) return;
  pool.blocks.settle();
  for (const CUdeviceptr chunk : pool.blocks.idle_chunks()) {
    const std::uint64_t size = pool.blocks.chunks().at(chunk);
    if (pool.blocks.reserved() >= keep + size) remove_chunk(pool, chunk);
  }
}

bool Pools::release_unused(std::uint32_t device) {
  bool is_any = false;
  for (const auto& [id, pool] : pools_) {
    const std::uint64_t before = pool->blocks.reserved();
    if (pool->device == device) trim(*pool, 0);
    is_any = is_any || pool->blocks.reserved() < before;
  }
  return is_any;
}

Pools::Found Pools::find_block(CUdeviceptr address) const {
  const auto range = driver_.space.find(address);
  const auto owner = range.reservation == nullptr ? owners_.end() : owners_.find(range.range_base);
  if (owner == owners_.end()) return {};
  const auto [start, block] = owner->second->blocks.find_used(address);
  return block == nullptr ? Found{} : Found{owner->second, start, block->wanted, block->id};
}

}  // namespace gpumem::sim
