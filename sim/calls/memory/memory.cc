// Memory of a context: figures, allocation.
#include <cuda.h>

#include <cstdint>

#include "calls.h"
#include "sim/driver/driver.h"

namespace gpumem::sim {

CUresult api::cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::uint32_t device = driver->device(context->ordinal);
  *total = driver->table->total(device);
  *free = driver->table->free(device);
  return CUDA_SUCCESS;
}

CUresult api::cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  if (address == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult unsafe = driver->captures.check_unsafe();
  return unsafe == CUDA_SUCCESS ? driver->allocate(*context, size, address) : unsafe;
}

CUresult api::cuMemFree_v2(CUdeviceptr address) {
  Call driver;
  if (!driver) return driver.error();
  if (address == 0) return CUDA_SUCCESS;
  if (const CUresult unsafe = driver->captures.check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;
  // The address tells the context, so none need be current. Its work may still use the memory.
  const auto found = driver->space.find(address);
  if (found.reservation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (found.reservation->use == Use::kPool)
    return driver->pools.free(address, Ticket());  // waits for nothing
  if (found.reservation->use == Use::kGraph) return driver->graph_memory.free(address, Ticket());
  driver.wait(driver->streams.pending_in(found.reservation->owner));
  return driver->free(address);
}

CUresult api::cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                                 unsigned int element) {
  constexpr size_t kPitch = 512;
  if (pitch == nullptr || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  size_t row = 0, size = 0;
  if (__builtin_add_overflow(width, kPitch - 1, &row)) return CUDA_ERROR_INVALID_VALUE;
  row = row / kPitch * kPitch;
  if (__builtin_mul_overflow(row, height, &size)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = api::cuMemAlloc_v2(address, size);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

}  // namespace gpumem::sim
