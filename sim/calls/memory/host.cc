// Host memory that devices reach: allocated for that (pinned) or registered.
#include <cuda.h>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kAllocationFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegistrationFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                        CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

/// Takes memory back after the work that may use it; the address tells the context, so none need be current.
template <class Take>
CUresult take_back(void* start, CUresult unknown, Take take) {
  Call driver;
  if (!driver) return driver.error();
  const auto address = reinterpret_cast<std::uint64_t>(start);
  const HostMemory::Block* const block = driver->host.find(address);
  if (block == nullptr) return unknown;
  if (block->start != address) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = driver->captures.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  driver.wait(driver->streams.pending_in(block->context));
  const std::lock_guard no_copies(driver->in_use);
  return take(driver->host, address) ? CUDA_SUCCESS : unknown;
}

}  // namespace

CUresult api::cuMemHostAlloc(void** out, size_t size, unsigned int flags) {
  return with_current([&](Call& driver, Context& context) {
    if (out == nullptr || size == 0 || (flags & ~kAllocationFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = driver->captures.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    *out = driver->host.allocate(size, context.id, flags);
    return *out == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}

CUresult api::cuMemAllocHost_v2(void** out, size_t size) { return api::cuMemHostAlloc(out, size, 0); }

CUresult api::cuMemFreeHost(void* start) {
  return take_back(start, CUDA_ERROR_INVALID_VALUE,
                   [](HostMemory& host, std::uint64_t address) { return host.free(address); });
}

CUresult api::cuMemHostRegister_v2(void* start, size_t size, unsigned int flags) {
  return with_current([&](Call& driver, Context& context) {
    const auto address = reinterpret_cast<std::uint64_t>(start);
    std::uint64_t end = 0;
    const bool wraps = __builtin_add_overflow(address, size, &end);
    if (start == nullptr || size == 0 || wraps || (flags & ~kRegistrationFlags) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver->space.find(address).reservation != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult unsafe = driver->captures.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
    return driver->host.add_registered(address, size, context.id, flags);
  });
}
CUresult api::cuMemHostRegister(void* start, size_t size, unsigned int flags) {
  return api::cuMemHostRegister_v2(start, size, flags);
}

CUresult api::cuMemHostUnregister(void* start) {
  return take_back(start, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                   [](HostMemory& host, std::uint64_t address) { return host.remove_registered(address); });
}

/// Devices see host memory where the host does.
CUresult api::cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* start, unsigned int flags) {
  return with_current([&](Call& driver, Context&) {
    const auto address = reinterpret_cast<std::uint64_t>(start);
    if (out == nullptr || flags != 0 || driver->host.find(address) == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    *out = address;
    return CUDA_SUCCESS;
  });
}

CUresult api::cuMemHostGetFlags(unsigned int* flags, void* start) {
  return with_current([&](Call& driver, Context&) {
    const HostMemory::Block* const block = driver->host.find(reinterpret_cast<std::uint64_t>(start));
    if (flags == nullptr || block == nullptr || block->is_registered) return CUDA_ERROR_INVALID_VALUE;
    *flags = block->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
