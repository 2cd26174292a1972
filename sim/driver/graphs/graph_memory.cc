#include "sim/driver/graphs/graph_memory.h"

#include <algorithm>
#include <utility>

#include "sim/driver/driver.h"
#include "sim/driver/memory/locations.h"

namespace gpumem::sim {

CUresult GraphMemory::add(GraphAllocation like, GraphAllocationRef* out) {
  const std::uint64_t most =
      like.device == layout::kHost ? std::uint64_t{1} << 46 : driver_.table->total(like.device);
  if (like.wanted > most) return CUDA_ERROR_OUT_OF_MEMORY;  // also keeps the rounding from wrapping
  like.size = (like.wanted + kGranularity.count - 1) / kGranularity.count * kGranularity.count;
  const CUresult result = driver_.space.reserve({.size = like.size, .use = Use::kGraph}, &like.address);
  if (result != CUDA_SUCCESS) return result;
  *out = std::make_shared<GraphAllocation>(std::move(like));
  allocations_[(*out)->address] = *out;
  return CUDA_SUCCESS;
}

GraphAllocationRef GraphMemory::find(CUdeviceptr address) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  const auto& [start, allocation] = *std::prev(after);
  return address - start < allocation->size ? allocation : nullptr;
}

bool GraphMemory::is_backed(const GraphAllocation& allocation) const {
  return driver_.space.find(allocation.address).mapping != nullptr;
}

/// An extent of the allocation's size, with one handle: a kept one before a new one.
CUresult GraphMemory::take_extent(const GraphAllocation& allocation, Extent** out) {
  const auto fits = [&](const Kept& kept) {
    return kept.device == allocation.device && kept.size == allocation.size;
  };
  if (const auto kept = std::ranges::find_if(kept_, fits); kept != kept_.end()) {
    *out = kept->extent;
    kept_.erase(kept);
    return CUDA_SUCCESS;
  }
  const Table::Request request{.device = allocation.device,
                               .kind = Kind::kMemory,
                               .size = allocation.size,
                               .handle_types = 0,
                               .numa_node = node_of(allocation.properties.location)};
  const CUresult result = driver_.create_extent(request, out);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  drop_kept(allocation.device);  // of other sizes
  return driver_.create_extent(request, out);
}

CUresult GraphMemory::back(const GraphAllocation& allocation) {
  if (is_backed(allocation)) return CUDA_SUCCESS;
  Extent* extent = nullptr;
  if (const CUresult result = take_extent(allocation, &extent); result != CUDA_SUCCESS) return result;
  VaSpace& space = driver_.space;
  CUresult result = space.map(allocation.address, allocation.size, *extent);
  if (result == CUDA_SUCCESS)
    result = space.set_access(allocation.address, allocation.size, allocation.access);
  extent->handles = 0;  // held by its mapping alone
  if (result != CUDA_SUCCESS && is_backed(allocation)) driver_.unmap(allocation.address, allocation.size);
  if (result != CUDA_SUCCESS) return result;
  note_highs(allocation.device);
  return CUDA_SUCCESS;
}

CUresult GraphMemory::free(CUdeviceptr address, const Ticket& freed) {
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || !found->second->is_live) return CUDA_ERROR_INVALID_VALUE;
  found->second->is_live = false;
  if (freed.stream() != 0) found->second->last = freed;
  collect();
  return CUDA_SUCCESS;
}

/// Takes the bytes from the address and keeps them.
void GraphMemory::keep(const GraphAllocation& allocation) {
  const auto found = driver_.space.find(allocation.address);
  if (found.mapping == nullptr) return;
  Extent& extent = *found.mapping->extent;
  extent.handles = 1;
  kept_.push_back({&extent, allocation.size, allocation.device});
  driver_.unmap(allocation.address, allocation.size);
}

void GraphMemory::collect() {
  std::erase_if(allocations_, [this](const auto& entry) {
    const GraphAllocation& allocation = *entry.second;
    const bool is_needed = entry.second.use_count() > 1 || allocation.is_live || !allocation.last.is_done();
    if (is_needed) return false;
    keep(allocation);
    driver_.space.unreserve(allocation.address, allocation.size, 0);
    return true;
  });
}

void GraphMemory::drop_kept(std::uint32_t device) {
  std::erase_if(kept_, [&](const Kept& kept) {
    if (kept.device != device) return false;
    kept.extent->handles = 0;
    driver_.handles->drop_if_unused(*kept.extent);
    return true;
  });
}

void GraphMemory::trim(std::uint32_t device) {
  collect();
  for (const auto& [address, allocation] : allocations_) {
    const bool is_idle = !allocation->is_live && allocation->last.is_done();
    if (allocation->device == device && is_idle) keep(*allocation);
  }
  drop_kept(device);
}

GraphMemory::Figures GraphMemory::figures(std::uint32_t device) const {
  Figures told;
  for (const auto& [address, allocation] : allocations_) {
    if (allocation->device == device && is_backed(*allocation)) told.used += allocation->size;
  }
  told.reserved = told.used;
  for (const Kept& kept : kept_) told.reserved += kept.device == device ? kept.size : 0;
  const auto highs = highs_.find(device);
  if (highs == highs_.end()) return told;
  told.used_high = highs->second.used;
  told.reserved_high = highs->second.reserved;
  return told;
}

void GraphMemory::note_highs(std::uint32_t device) {
  const Figures now = figures(device);
  Highs& highs = highs_[device];
  highs = {std::max(highs.used, now.used), std::max(highs.reserved, now.reserved)};
}

void GraphMemory::reset_used_high(std::uint32_t device) { highs_[device].used = figures(device).used; }
void GraphMemory::reset_reserved_high(std::uint32_t device) {
  highs_[device].reserved = figures(device).reserved;
}

}  // namespace gpumem::sim
