// Primary contexts: one for each device and process, counted.
#include <cuda.h>

#include "calls.h"
#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

/// Finds the device's primary context for `act`.
template <class Act>
CUresult with_primary(CUdevice device, Act act) {
  Call driver;
  if (!driver) return driver.error();
  if (!driver->has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return act(driver, driver->contexts.primary(device));
}

/// Ends the context's memory and streams, after their work.
void end(Call& driver, Context& context) {
  driver.wait(driver->streams.pending_in(context.id));  // a primary context is never erased
  if (context.memory != nullptr) driver->deactivate(context);
}

}  // namespace

CUresult api::cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return with_primary(device, [&](Call& driver, Context& context) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (context.memory == nullptr) {
      if (const CUresult result = driver->activate(context); result != CUDA_SUCCESS) return result;
    }
    ++context.retained;
    *out = Contexts::handle_of(context);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return with_primary(device, [](Call& driver, Context& context) {
    if (context.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context.retained == 0) end(driver, context);
    return CUDA_SUCCESS;
  });
}
CUresult api::cuDevicePrimaryCtxRelease(CUdevice device) { return api::cuDevicePrimaryCtxRelease_v2(device); }

CUresult api::cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return with_primary(device, [](Call& driver, Context& context) {
    end(driver, context);
    return CUDA_SUCCESS;
  });
}
CUresult api::cuDevicePrimaryCtxReset(CUdevice device) { return api::cuDevicePrimaryCtxReset_v2(device); }

CUresult api::cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return with_primary(device, [flags](Call&, Context& context) {
    if ((flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
    context.flags = flags;
    return CUDA_SUCCESS;
  });
}
CUresult api::cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return api::cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult api::cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return with_primary(device, [&](Call&, const Context& context) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    *active = context.memory != nullptr;
    return CUDA_SUCCESS;
  });
}

}  // namespace gpumem::sim
