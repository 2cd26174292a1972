// Contexts: created ones, each thread's stack of current ones, what they are set to.
#include <cuda.h>

#include "calls.h"
#include "sim/calls/find_object.h"
#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || (flags & ~unsigned{CU_CTX_FLAGS_MASK}) != 0) return CUDA_ERROR_INVALID_VALUE;
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

CUresult synchronize(Call& driver, const Context& context) {
  const std::uint64_t id = context.id;
  if (const CUresult result = driver->captures.check_no_capture_in(id); result != CUDA_SUCCESS) return result;
  if (const CUresult result = driver->captures.check_unsafe(); result != CUDA_SUCCESS) return result;
  driver.wait(driver->streams.pending_in(id));
  driver->pools.synchronized();
  return driver->after_wait(id);
}

}  // namespace

CUresult api::cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}
CUresult api::cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* /*parameters*/, int /*count*/,
                             unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}
#if CUDA_VERSION >= 12050
CUresult api::cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* /*parameters*/, unsigned int flags,
                             CUdevice device) {
  return create(context, flags, device);
}
#endif
CUresult api::cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return create(context, flags, device);
}

CUresult api::cuCtxDestroy_v2(CUcontext handle) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = driver->contexts.find(handle);
  if (context == nullptr || context->is_primary) return CUDA_ERROR_INVALID_CONTEXT;
  driver.wait(driver->streams.pending_in(context->id));
  context = driver->contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  driver->deactivate(*context);
  driver->contexts.erase(*context);
  if (Contexts::top() == handle) Contexts::pop();
  return CUDA_SUCCESS;
}
CUresult api::cuCtxDestroy(CUcontext handle) { return api::cuCtxDestroy_v2(handle); }

/// The old way of counting uses: the last one that detaches destroys.
CUresult api::cuCtxAttach(CUcontext* out, unsigned int flags) {
  return with_current([&](Call&, Context& context) {
    if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    ++context.attached;
    *out = Contexts::handle_of(context);
    return CUDA_SUCCESS;
  });
}
CUresult api::cuCtxDetach(CUcontext handle) {
  {
    Call driver;
    if (!driver) return driver.error();
    Context* const context = driver->contexts.find(handle);
    if (context != nullptr && context->attached > 0) {
      --context->attached;
      return CUDA_SUCCESS;
    }
  }
  return api::cuCtxDestroy_v2(handle);
}

// One that was destroyed, too: what is done in it then is refused.
CUresult api::cuCtxPushCurrent_v2(CUcontext handle) {
  Call driver;
  if (!driver) return driver.error();
  if (!driver->contexts.ordinal_of(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  Contexts::push(handle);
  return CUDA_SUCCESS;
}
CUresult api::cuCtxPushCurrent(CUcontext handle) { return api::cuCtxPushCurrent_v2(handle); }

CUresult api::cuCtxPopCurrent_v2(CUcontext* out) {
  Call driver;
  if (!driver) return driver.error();
  const auto handle = Contexts::pop();
  if (!handle) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = *handle;
  return CUDA_SUCCESS;
}
CUresult api::cuCtxPopCurrent(CUcontext* out) { return api::cuCtxPopCurrent_v2(out); }

CUresult api::cuCtxSetCurrent(CUcontext handle) {
  Call driver;
  if (!driver) return driver.error();
  if (handle != nullptr && !driver->contexts.ordinal_of(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  Contexts::pop();
  if (handle != nullptr) Contexts::push(handle);
  return CUDA_SUCCESS;
}

CUresult api::cuCtxGetCurrent(CUcontext* out) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = Contexts::top();
  return CUDA_SUCCESS;
}

// Also of one that was destroyed, as it is told to be current.
CUresult api::cuCtxGetDevice(CUdevice* device) {
  Call driver;
  if (!driver) return driver.error();
  const auto ordinal = driver->contexts.ordinal_of(Contexts::top());
  if (!ordinal) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = *ordinal;
  return CUDA_SUCCESS;
}

CUresult api::cuCtxSynchronize() { return with_current(synchronize); }
#if CUDA_VERSION >= 13000
CUresult api::cuCtxSynchronize_v2(CUcontext named) { return with_context(named, synchronize); }

CUresult api::cuCtxGetDevice_v2(CUdevice* device, CUcontext named) {
  return with_context(named, [&](Call&, const Context& context) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.ordinal;
    return CUDA_SUCCESS;
  });
}
#endif

}  // namespace gpumem::sim
