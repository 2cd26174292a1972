// Virtual memory management: the memory of cuMemCreate is borrowed. Reservations and access are the driver's
// own. A block is mapped in such a way underneath, but not by the program: as of the driver's own blocks, it
// may not be unmapped, opened to others or have a handle.
#include "client/shim/calls.h"
#include "client/shim/calls/charged.h"
#include "client/shim/memory/process.h"
#include "client/shim/real.h"

namespace gpumem::shim {
namespace {

constinit RealCall<decltype(::cuMemCreate)> real_create_handle("cuMemCreate");
constinit RealCall<decltype(::cuMemRelease)> real_release_handle("cuMemRelease");
constinit RealCall<decltype(::cuMemMap)> real_map_handle("cuMemMap");
constinit RealCall<decltype(::cuMemSetAccess)> real_set_access("cuMemSetAccess");
constinit RealCall<decltype(::cuMemAddressFree)> real_free_address("cuMemAddressFree");
constinit RealCall<decltype(::cuMemRetainAllocationHandle)> real_retain_handle("cuMemRetainAllocationHandle");
constinit RealCall<decltype(::cuMemGetAllocationPropertiesFromHandle)> real_properties(
    "cuMemGetAllocationPropertiesFromHandle");
constinit RealCall<decltype(::cuMemExportToShareableHandle)> real_export_handle(
    "cuMemExportToShareableHandle");
constinit RealCall<decltype(::cuMemImportFromShareableHandle)> real_import_handle(
    "cuMemImportFromShareableHandle");
constinit RealCall<decltype(::cuMemGetAllocationGranularity)> real_granularity(
    "cuMemGetAllocationGranularity");

/// As guarded(), for calls that are refused for blocks.
template <class Call>
CUresult unless_of_a_block(CUdeviceptr address, const Call& call) {
  return guarded(
      [&] { return Process::current().is_of_a_block(address) ? CUDA_ERROR_INVALID_VALUE : call(); });
}

constexpr unsigned kFabric = 8;  // CU_MEM_HANDLE_TYPE_FABRIC, of CUDA 12.3

bool is_of_device(const CUmemAllocationProp& asked) {
  return asked.type == CU_MEM_ALLOCATION_TYPE_PINNED && asked.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/// On the host, or for a use that the broker's extents are not made for: the tiles of sparse arrays, or
/// decompression.
CUresult create_of_driver(Chargeable& memory, CUmemGenericAllocationHandle* handle, std::size_t size,
                          const CUmemAllocationProp& asked) {
  if (handle == nullptr || size == 0) return real_create_handle(handle, size, &asked, 0);
  const CUresult charged = memory.charge_outside("cuMemCreate", {size});
  if (charged != CUDA_SUCCESS) return charged;
  const CUresult created = real_create_handle(handle, size, &asked, 0);
  memory.tell_refusal_of_driver("cuMemCreate", {size}, created);
  if (created == CUDA_SUCCESS)
    Process::current().outside().add(Outside::Name::of_handle(*handle), {.memory = &memory, .bytes = {size}});
  else
    memory.discharge_outside({size});
  return created;
}

CUresult create_handle(DeviceMemory& memory, CUmemGenericAllocationHandle* handle, std::size_t size,
                       const CUmemAllocationProp& asked) {
  const auto types = static_cast<unsigned>(asked.requestedHandleTypes);
  if ((types & kFabric) != 0) return CUDA_ERROR_NOT_SUPPORTED;  // frameworks then ask without
  std::size_t unit = 0;
  const CUresult known = real_granularity(&unit, &asked, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (known != CUDA_SUCCESS) return known;
  const bool is_whole = size != 0 && unit != 0 && size % unit == 0 && size % memory.granularity().count == 0;
  if (handle == nullptr || !is_whole) return CUDA_ERROR_INVALID_VALUE;
  return Process::current().handles().create(memory, {size}, asked, handle);
}

}  // namespace

CUresult calls::cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                            const CUmemAllocationProp* prop, unsigned long long flags) {
  return guarded([&] {
    const auto forward = [&] { return real_create_handle(handle, size, prop, flags); };
    Process& process = Process::current();
    if (!process.is_brokered() || prop == nullptr || flags != 0) return forward();
    if (is_of_host(prop->location)) return create_of_driver(process.pinned(), handle, size, *prop);
    if (!is_of_device(*prop)) return forward();
    const auto found = process.memory_of(prop->location.id);
    if (found.result != CUDA_SUCCESS) return found.result;
    if (found.memory == nullptr) return forward();
    const CUresult created = prop->allocFlags.usage == 0
                                 ? create_handle(*found.memory, handle, size, *prop)
                                 : create_of_driver(*found.memory, handle, size, *prop);
    return or_of_driver(created, *found.memory, forward);
  });
}

CUresult calls::cuMemRelease(CUmemGenericAllocationHandle handle) {
  return guarded([&] {
    const auto ours = Process::current().handles().release(handle);
    if (ours) return *ours;
    return Process::current().outside().free(Outside::Name::of_handle(handle),
                                             [handle] { return real_release_handle(handle); });
  });
}

CUresult calls::cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
  return unless_of_a_block(ptr, [&] {
    const auto ours = Process::current().handles().map(ptr, {size}, {offset}, handle, flags);
    return ours ? *ours : real_map_handle(ptr, size, offset, handle, flags);
  });
}

CUresult calls::cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return unless_of_a_block(ptr, [&] { return Process::current().handles().unmap(ptr, {size}); });
}

CUresult calls::cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return unless_of_a_block(ptr, [&] { return real_set_access(ptr, size, desc, count); });
}

CUresult calls::cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return unless_of_a_block(ptr, [&] { return real_free_address(ptr, size); });
}

CUresult calls::cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const auto address = reinterpret_cast<CUdeviceptr>(addr);
  return unless_of_a_block(address, [&] {
    Process& process = Process::current();
    if (handle == nullptr) return real_retain_handle(handle, addr);
    if (const auto ours = process.handles().retain(address, handle)) return *ours;
    const CUresult retained = real_retain_handle(handle, addr);
    if (retained == CUDA_SUCCESS) process.outside().use_again(Outside::Name::of_handle(*handle));
    return retained;
  });
}

CUresult calls::cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                       CUmemGenericAllocationHandle handle) {
  return guarded([&] {
    const auto ours = prop != nullptr ? Process::current().handles().properties(handle, prop) : std::nullopt;
    return ours ? *ours : real_properties(prop, handle);
  });
}

CUresult calls::cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType handleType, unsigned long long flags) {
  return guarded([&] {
    const auto ours = shareableHandle != nullptr
                          ? Process::current().handles().export_to(shareableHandle, handle, handleType, flags)
                          : std::nullopt;
    return ours ? *ours : real_export_handle(shareableHandle, handle, handleType, flags);
  });
}

// An export of this process stays charged while the process uses it by an import.
CUresult calls::cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                               CUmemAllocationHandleType shHandleType) {
  return guarded([&] {
    const bool is_file = handle != nullptr && shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const int fd = is_file ? static_cast<int>(reinterpret_cast<std::intptr_t>(osHandle)) : -1;
    const auto ours = is_file ? Process::current().handles().import(fd, handle) : std::nullopt;
    return ours ? *ours : real_import_handle(handle, osHandle, shHandleType);
  });
}

}  // namespace gpumem::shim
