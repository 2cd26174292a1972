#include "sim/driver/handles.h"

#include <utility>

namespace gpumem::sim {

Extent& Handles::add(SlotRef slot, UniqueFd fd, const Table::Request& request, bool is_imported) {
  auto extent = std::make_unique<Extent>();
  extent->handle = last_ += 16;
  extent->slot = slot;
  extent->fd = std::move(fd);
  extent->size = request.size;
  extent->device = request.device;
  extent->numa_node = request.numa_node;
  extent->handle_types = request.handle_types & ~kDirectAccess;
  extent->rdma_capable = static_cast<unsigned char>((request.handle_types & kDirectAccess) != 0);
  extent->is_imported = is_imported;
  return *extents_.emplace(extent->handle, std::move(extent)).first->second;
}

Extent* Handles::find(CUmemGenericAllocationHandle handle) {
  const auto found = extents_.find(handle);
  return found != extents_.end() && found->second->handles > 0 ? found->second.get() : nullptr;
}

void Handles::drop_if_unused(Extent& extent) {
  if (extent.handles > 0 || extent.mappings > 0) return;
  const SlotRef slot = extent.slot;
  const bool is_imported = extent.is_imported;
  const bool is_exported = extent.is_exported;
  extents_.erase(extent.handle);  // closes the descriptor
  if (is_imported) {
    table_.destroy_if_dead(slot);
  } else if (is_exported) {
    table_.release(slot);
  } else {
    table_.destroy(slot);  // nobody else can hold it
  }
}

void Handles::close_all_in_child() {
  for (auto& [handle, extent] : extents_) extent->fd.reset();
}

}  // namespace gpumem::sim
