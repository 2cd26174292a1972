// Copies and fills. The access of the current context's device is checked under the lock; the bytes move
// outside it. Every stream is synchronous, so the asynchronous variants are the same work.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "sim/api_alias.h"
#include "sim/driver.h"

using namespace gpumem::sim;

namespace {

enum class Side { kDevice, kHost, kEither };

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult check(Call& driver, std::uint32_t device, CUdeviceptr address, std::uint64_t size, Side side,
               bool is_write) {
  if (side == Side::kHost) return address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const bool is_host = side == Side::kEither && driver->space.find(address).reservation == nullptr;
  if (is_host) return address != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return driver->space.check_access(address, size, device, is_write);
}

struct End {
  CUdeviceptr address;
  Side side;
};

CUresult copy(End to, End from, std::uint64_t size) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  if (size == 0) return CUDA_SUCCESS;
  const std::uint32_t device = driver->device(context->ordinal);
  if (const CUresult r = check(driver, device, to.address, size, to.side, true); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check(driver, device, from.address, size, from.side, false); r != CUDA_SUCCESS)
    return r;
  driver.unlock();
  std::memmove(pointer(to.address), pointer(from.address), size);
  return CUDA_SUCCESS;
}

End device(CUdeviceptr address) { return {address, Side::kDevice}; }
End host(const void* address) { return {reinterpret_cast<CUdeviceptr>(address), Side::kHost}; }
End either(CUdeviceptr address) { return {address, Side::kEither}; }

template <class Element>
CUresult fill(CUdeviceptr address, Element value, std::uint64_t count) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  std::uint64_t size = 0;
  if (address % sizeof(Element) != 0 || __builtin_mul_overflow(count, sizeof(Element), &size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint32_t index = driver->device(context->ordinal);
  if (const CUresult r = check(driver, index, address, size, Side::kDevice, true); r != CUDA_SUCCESS)
    return r;
  driver.unlock();
  std::fill_n(static_cast<Element*>(pointer(address)), count, value);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) {
  return copy(device(to), host(from), size);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) { return copy(host(to), device(from), size); }
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(device(to), device(from), size);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return copy(either(to), either(from), size);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream) {
  return copy(device(to), host(from), size);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream) {
  return copy(host(to), device(from), size);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
  return copy(device(to), device(from), size);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream) {
  return copy(either(to), either(from), size);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) { return fill(to, value, count); }
CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) { return fill(to, value, count); }
CUresult cuMemsetD32(CUdeviceptr to, unsigned int value, size_t count) { return fill(to, value, count); }
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream) {
  return fill(to, value, count);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream) {
  return fill(to, value, count);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream) {
  return fill(to, value, count);
}

GPUMEM_SIM_ALIAS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2);
GPUMEM_SIM_ALIAS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2);
GPUMEM_SIM_ALIAS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2);
GPUMEM_SIM_ALIAS(cuMemcpy_ptds, cuMemcpy);
GPUMEM_SIM_ALIAS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2);
GPUMEM_SIM_ALIAS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2);
GPUMEM_SIM_ALIAS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2);
GPUMEM_SIM_ALIAS(cuMemcpyAsync_ptsz, cuMemcpyAsync);
GPUMEM_SIM_ALIAS(cuMemsetD8_v2_ptds, cuMemsetD8_v2);
GPUMEM_SIM_ALIAS(cuMemsetD16_v2_ptds, cuMemsetD16_v2);
GPUMEM_SIM_ALIAS(cuMemsetD32_v2_ptds, cuMemsetD32_v2);
GPUMEM_SIM_ALIAS(cuMemsetD8Async_ptsz, cuMemsetD8Async);
GPUMEM_SIM_ALIAS(cuMemsetD16Async_ptsz, cuMemsetD16Async);
GPUMEM_SIM_ALIAS(cuMemsetD32Async_ptsz, cuMemsetD32Async);
