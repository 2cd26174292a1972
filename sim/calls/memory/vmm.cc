// Virtual memory management: physical extents and sharing them, by descriptor and by fabric handle.
#include <cuda.h>

#include <cstdint>
#include <cstring>

#include "calls.h"
#include "sim/driver/memory/locations.h"
#include "sim/exports/gate.h"

namespace gpumem::sim {
namespace {

constexpr std::uint64_t kExportMagic = 0x6d69732d62616672;  // "rfab-sim"

/// What the 64 bytes of a fabric handle hold. They keep nothing alive.
struct FabricPlace {
  std::uint64_t magic = kExportMagic;
  std::uint64_t generation = 0;
  std::uint32_t index = 0;
  std::uint32_t device = 0;
  Uuid uuid{};  ///< the device's: it tells the machine
};
constexpr std::size_t kFabricHandleBytes = 64;
static_assert(sizeof(FabricPlace) <= kFabricHandleBytes);

/// Whether `type` is one way to pass memory on. Errors  as check_handle_types().
CUresult check_type(Call& driver, unsigned type) {
  const bool is_one = type != 0 && (type & (type - 1)) == 0;
  return is_one ? check_handle_types(type, driver->fabric) : CUDA_ERROR_INVALID_VALUE;
}

void write_fabric_handle(Call& driver, const Extent& extent, void* out) {
  const FabricPlace place{.generation = extent.slot.generation,
                          .index = extent.slot.index,
                          .device = extent.device,
                          .uuid = driver->table->uuid(extent.device)};
  std::memset(out, 0, kFabricHandleBytes);
  std::memcpy(out, &place, sizeof place);
}

using Opened = std::optional<Table::Opened>;

Opened open_fabric_handle(Call& driver, const void* bytes) {
  FabricPlace place;
  if (bytes == nullptr) return std::nullopt;
  std::memcpy(&place, bytes, sizeof place);
  const Table& table = *driver->table;
  const bool is_here = place.magic == kExportMagic && place.device < table.device_count() &&
                       place.uuid == table.uuid(place.device);
  Opened opened = is_here ? driver->table->open_by_place({place.index, place.generation}) : std::nullopt;
  if (!opened || (opened->info.handle_types & kFabricHandle) == 0 || !opened->info.exported)
    return std::nullopt;
  return opened;
}

// Duplicated first: what is identified is what is kept, whatever becomes of the caller's descriptor.
Opened open_descriptor(Call& driver, int descriptor) {
  UniqueFd fd = duplicate(descriptor);
  const auto info = driver->table->identify(fd.get());
  if (!info) return std::nullopt;
  return Table::Opened{*info, std::move(fd)};
}

}  // namespace

CUresult api::cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                            CUmemAllocationGranularity_flags option) {
  Call driver;
  if (!driver) return driver.error();
  const bool is_option =
      option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (granularity == nullptr || !is_option) return CUDA_ERROR_INVALID_VALUE;
  const CUresult valid = check_properties(driver, prop);
  if (valid == CUDA_SUCCESS) *granularity = kGranularity.count;
  return valid;
}

CUresult api::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                          unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (handle == nullptr || !is_granular_size(size) || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_properties(driver, prop); valid != CUDA_SUCCESS) return valid;
  Extent* extent = nullptr;
  const std::uint32_t direct = prop->allocFlags.gpuDirectRDMACapable != 0 ? kDirectAccess : 0;
  Table::Request request{.device = 0,
                         .kind = Kind::kMemory,
                         .size = size,
                         .handle_types = static_cast<std::uint32_t>(prop->requestedHandleTypes) | direct,
                         .numa_node = node_of(prop->location)};
  resolve(driver, prop->location, &request.device);
  const CUresult result = driver->create_extent(request, &extent);
  if (result != CUDA_SUCCESS) return result;
  // Memory of the host is pinned here, once for all processes. It takes as long as to register it, for want
  // of a figure.
  if (request.device == layout::kHost) Gate::add_cost_of("cuMemHostRegister", size);
  *handle = extent->handle;
  return CUDA_SUCCESS;
}

CUresult api::cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call driver;
  if (!driver) return driver.error();
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --extent->handles;
  driver->handles->drop_if_unused(*extent);
  return CUDA_SUCCESS;
}

CUresult api::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(reinterpret_cast<CUdeviceptr>(address));
  if (handle == nullptr || found.mapping == nullptr || found.reservation->use != Use::kProgram)
    return CUDA_ERROR_INVALID_VALUE;
  Extent* const extent = found.mapping->extent;
  ++extent->handles;
  *handle = extent->handle;
  return CUDA_SUCCESS;
}

CUresult api::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                     CUmemGenericAllocationHandle handle) {
  Call driver;
  if (!driver) return driver.error();
  const Extent* const extent = driver->handles->find(handle);
  if (prop == nullptr || extent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = {};
  prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(extent->handle_types);
  prop->location = location_of(driver, *extent);
  prop->allocFlags.gpuDirectRDMACapable = extent->rdma_capable;
  return CUDA_SUCCESS;
}

CUresult api::cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                           CUmemAllocationHandleType type, unsigned long long flags) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_type(driver, type); valid != CUDA_SUCCESS) return valid;
  Extent* const extent = driver->handles->find(handle);
  if (extent == nullptr || (extent->handle_types & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool by_fabric = type == kFabricHandle;
  gpumem::UniqueFd fd = by_fabric ? gpumem::UniqueFd() : duplicate(extent->fd.get());
  if (!by_fabric && !fd.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!driver->table->mark_exported(extent->slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  extent->is_exported = true;
  if (by_fabric)
    write_fabric_handle(driver, *extent, out);
  else
    *static_cast<int*>(out) = fd.release();
  return CUDA_SUCCESS;
}

CUresult api::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                             CUmemAllocationHandleType type) {
  Call driver;
  if (!driver) return driver.error();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult valid = check_type(driver, type); valid != CUDA_SUCCESS) return valid;
  Opened opened = type == kFabricHandle
                      ? open_fabric_handle(driver, os_handle)
                      : open_descriptor(driver, static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
  if (!opened || opened->info.kind != Kind::kMemory) return CUDA_ERROR_INVALID_VALUE;
  const ExtentInfo& info = opened->info;
  if (info.device != layout::kHost && driver->ordinal(info.device) < 0) return CUDA_ERROR_INVALID_DEVICE;
  const Table::Request request{.device = info.device,
                               .kind = info.kind,
                               .size = info.size,
                               .handle_types = 0,  // an import cannot be exported
                               .numa_node = info.numa_node};
  Extent& extent = driver->handles->add(info.slot, std::move(opened->fd), request, true);
  extent.handles = 1;
  *handle = extent.handle;
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
