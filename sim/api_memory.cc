// Memory of a context: allocation, figures, what an address is; host memory.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "sim/api_alias.h"
#include "sim/driver.h"

using namespace gpumem::sim;

namespace {

std::uint64_t start_of(const VaSpace::Found& found) {
  return found.reservation->owner != 0 ? found.range_base : found.base;
}

/// Answers one attribute of mapped device memory.
CUresult answer(Call& driver, const VaSpace::Found& found, CUpointer_attribute attribute, CUdeviceptr address,
                void* out) {
  const Extent& extent = *found.mapping->extent;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) = reinterpret_cast<CUcontext>(found.reservation->owner);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr*>(out) = address; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      *static_cast<unsigned long long*>(out) = extent.slot.generation;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = driver->ordinal(extent.device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(out) = start_of(found);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<size_t*>(out) = found.mapping->size;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED: *static_cast<bool*>(out) = true; return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(out) = extent.handle_types;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      *static_cast<bool*>(out) = false;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

/// Pinned host memory by its start. Host memory costs no device memory, so it needs no machine.
struct HostMemory {
  std::mutex mutex;
  std::map<void*, size_t> allocated;   ///< by us
  std::map<void*, size_t> registered;  ///< the caller's

  static HostMemory& get() {
    static auto* const memory = new HostMemory();
    return *memory;
  }
};

CUresult check_context() {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  return driver->current(&context);
}

}  // namespace

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint32_t device = driver->device(context->ordinal);
  *total = driver->table->total(device);
  *free = *total - driver->table->used(device);
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t size) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  if (address == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  return driver->allocate(*context, size, address);
}

CUresult cuMemFree(CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  return address == 0 ? CUDA_SUCCESS : driver->free(address);
}

CUresult cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                         unsigned int element) {
  constexpr size_t kPitch = 512;
  if (pitch == nullptr || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  size_t row = 0, size = 0;
  if (__builtin_add_overflow(width, kPitch - 1, &row)) return CUDA_ERROR_INVALID_VALUE;
  row = row / kPitch * kPitch;
  if (__builtin_mul_overflow(row, height, &size)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = cuMemAlloc(address, size);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

/// Managed memory is device memory here: the host reaches that too.
CUresult cuMemAllocManaged(CUdeviceptr* address, size_t size, unsigned int flags) {
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  return cuMemAlloc(address, size);
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream) { return cuMemAlloc(address, size); }
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream) { return cuMemFree(address); }
GPUMEM_SIM_ALIAS(cuMemAllocAsync_ptsz, cuMemAllocAsync);
GPUMEM_SIM_ALIAS(cuMemFreeAsync_ptsz, cuMemFreeAsync);

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  if (found.mapping == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start_of(found);
  if (size != nullptr) *size = found.mapping->size;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->space.find(address);
  if (out == nullptr || found.reservation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (found.mapping != nullptr) return answer(driver, found, attribute, address, out);
  if (attribute != CU_POINTER_ATTRIBUTE_MAPPED) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<bool*>(out) = false;
  return CUDA_SUCCESS;
}

/// Attributes that do not apply are left as zero, as the real call does.
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** out,
                                CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  if (count == 0 || attributes == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = driver->space.find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (found.mapping != nullptr) {
      answer(driver, found, attributes[i], address, out[i]);
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
      *static_cast<unsigned*>(out[i]) = 0;
    } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
               attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED) {
      *static_cast<bool*>(out[i]) = false;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** out, size_t size, unsigned int /*flags*/) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  HostMemory& host = HostMemory::get();
  const std::lock_guard lock(host.mutex);
  host.allocated[start] = size;
  *out = start;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void** out, size_t size) { return cuMemHostAlloc(out, size, 0); }

CUresult cuMemFreeHost(void* start) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  HostMemory& host = HostMemory::get();
  const std::lock_guard lock(host.mutex);
  const auto found = host.allocated.find(start);
  if (found == host.allocated.end()) return CUDA_ERROR_INVALID_VALUE;
  ::munmap(start, found->second);
  host.allocated.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* start, size_t size, unsigned int /*flags*/) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (start == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  HostMemory& host = HostMemory::get();
  const std::lock_guard lock(host.mutex);
  const bool is_new = host.registered.try_emplace(start, size).second;
  return is_new ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* start) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  HostMemory& host = HostMemory::get();
  const std::lock_guard lock(host.mutex);
  return host.registered.erase(start) == 1 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* out, void* start, unsigned int flags) {
  if (const CUresult result = check_context(); result != CUDA_SUCCESS) return result;
  if (out == nullptr || start == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUdeviceptr>(start);
  return CUDA_SUCCESS;
}
