// Contexts: primary and created, and each thread's stack of current ones.
#include <cuda.h>

#include "sim/api_alias.h"
#include "sim/driver.h"

using namespace gpumem::sim;

namespace {

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& context = driver->contexts.create(device, flags, false);
  if (const CUresult result = driver->activate(context); result != CUDA_SUCCESS) {
    driver->contexts.erase(context);
    return result;
  }
  *out = Contexts::handle_of(context);
  Contexts::push(*out);
  return CUDA_SUCCESS;
}

}  // namespace

#undef cuCtxCreate
extern "C" {
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}
CUresult CUDAAPI cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* /*params*/, int /*count*/,
                                unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}
#if CUDA_VERSION >= 12050
CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* /*params*/, unsigned int flags,
                                CUdevice device) {
  return create(context, flags, device);
}
#endif
}
GPUMEM_SIM_ALIAS(cuCtxCreate, cuCtxCreate_v2);

CUresult cuCtxDestroy(CUcontext handle) {
  Call driver;
  if (!driver) return driver.error();
  Context* const context = driver->contexts.find(handle);
  if (context == nullptr || context->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
  driver->deactivate(*context);
  driver->contexts.erase(*context);
  if (Contexts::top() == handle) Contexts::pop();
  return CUDA_SUCCESS;
}
#undef cuCtxDestroy
GPUMEM_SIM_ALIAS(cuCtxDestroy, cuCtxDestroy_v2);

CUresult cuCtxPushCurrent(CUcontext handle) {
  Call driver;
  if (!driver) return driver.error();
  if (driver->contexts.find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Contexts::push(handle);
  return CUDA_SUCCESS;
}
#undef cuCtxPushCurrent
GPUMEM_SIM_ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2);

CUresult cuCtxPopCurrent(CUcontext* out) {
  Call driver;
  if (!driver) return driver.error();
  const auto handle = Contexts::pop();
  if (!handle) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = *handle;
  return CUDA_SUCCESS;
}
#undef cuCtxPopCurrent
GPUMEM_SIM_ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2);

CUresult cuCtxSetCurrent(CUcontext handle) {
  Call driver;
  if (!driver) return driver.error();
  if (handle != nullptr && driver->contexts.find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Contexts::pop();
  if (handle != nullptr) Contexts::push(handle);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = Contexts::top();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  Call driver;
  if (!driver) return driver.error();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  const CUresult result = driver->current(&context);
  if (result == CUDA_SUCCESS) *device = context->ordinal;
  return result;
}

#undef cuCtxSynchronize
CUresult cuCtxSynchronize() {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  return driver->current(&context);
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  Call driver;
  if (!driver) return driver.error();
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (handle != nullptr && driver->contexts.find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& context = driver->contexts.primary(device);
  if (context.memory == nullptr) {
    if (const CUresult result = driver->activate(context); result != CUDA_SUCCESS) return result;
  }
  ++context.retained;
  *out = Contexts::handle_of(context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& context = driver->contexts.primary(device);
  if (context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context.retained == 0 && context.memory != nullptr) driver->deactivate(context);
  return CUDA_SUCCESS;
}
#undef cuDevicePrimaryCtxRelease
GPUMEM_SIM_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& context = driver->contexts.primary(device);
  if (context.memory != nullptr) driver->deactivate(context);
  return CUDA_SUCCESS;
}
#undef cuDevicePrimaryCtxReset
GPUMEM_SIM_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  Call driver;
  if (!driver) return driver.error();
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  driver->contexts.primary(device).flags = flags;
  return CUDA_SUCCESS;
}
#undef cuDevicePrimaryCtxSetFlags
GPUMEM_SIM_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  Call driver;
  if (!driver) return driver.error();
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const Context& context = driver->contexts.primary(device);
  *flags = context.flags;
  *active = context.memory != nullptr;
  return CUDA_SUCCESS;
}
