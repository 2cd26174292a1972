// Streams: queues of work in order.
#include <cuda.h>
#include "calls.h"
#include "sim/driver/driver.h"
#include "sim/exports/gate.h"

namespace gpumem::sim {
namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

CUresult create(CUstream* out, unsigned flags, int priority) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  const auto kind = flags == CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking;
  const StreamRef stream =
      driver->streams.create({.context = context->id,
                              .kind = kind,
                              .flags = flags,
                              .priority = std::clamp(priority, kGreatestPriority, kLeastPriority)});
  *out = handle<CUstream>(handle_of(*stream));
  return CUDA_SUCCESS;
}

/// Looks `stream` up and answers what `ask` makes of it.
template <class Value, class Ask>
CUresult answer(CUstream stream, Value* out, Ask ask) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  if (const CUresult result = driver->stream(stream, &found); result != CUDA_SUCCESS) return result;
  *out = ask(*found);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuStreamCreate(CUstream* out, unsigned int flags) { return create(out, flags, kLeastPriority); }

CUresult api::cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  return create(out, flags, priority);
}

CUresult api::cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  Call driver;
  if (!driver) return driver.error();
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamDestroy_v2(CUstream stream) {
  Call driver;
  if (!driver) return driver.error();
  const StreamRef found = driver->streams.find(number(stream));
  if (found == nullptr || !driver->is_created(*found)) return CUDA_ERROR_INVALID_HANDLE;
  driver->captures.forget(*found);
  driver->streams.destroy(found);
  return CUDA_SUCCESS;
}
CUresult api::cuStreamDestroy(CUstream stream) { return api::cuStreamDestroy_v2(stream); }

CUresult api::cuStreamSynchronize(CUstream stream) {
  Call driver;
  if (!driver) return driver.error();
  StreamRef found;
  if (const CUresult result = driver->queue_uncaptured(stream, &found); result != CUDA_SUCCESS) return result;
  if (const CUresult result = driver->captures.check_unsafe(); result != CUDA_SUCCESS) return result;
  driver.wait(driver->streams.pending(found));
  driver->pools.synchronized();
  return driver->after_wait(options_of(*found).context);
}

CUresult api::cuStreamQuery(CUstream stream) {
  Call driver;
  if (!driver) return driver.error();
  StreamRef found;
  if (const CUresult result = driver->queue_uncaptured(stream, &found); result != CUDA_SUCCESS) return result;
  if (const CUresult result = driver->captures.check_unsafe(); result != CUDA_SUCCESS) return result;
  return driver->streams.pending(found).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult api::cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return answer(stream, flags, [](const Stream& found) { return options_of(found).flags; });
}

CUresult api::cuStreamGetPriority(CUstream stream, int* priority) {
  return answer(stream, priority, [](const Stream& found) { return options_of(found).priority; });
}

#if CUDA_VERSION >= 12000
CUresult api::cuStreamGetId(CUstream stream, unsigned long long* id) {
  return answer(stream, id, [](const Stream& found) { return number_of(found); });
}
#endif

CUresult api::cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return answer(stream, context,
                [](const Stream& found) { return handle<CUcontext>(options_of(found).context); });
}

#if CUDA_VERSION >= 12080
CUresult api::cuStreamGetDevice(CUstream stream, CUdevice* device) {
  CUcontext context = nullptr;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::cuStreamGetCtx(stream, &context); result != CUDA_SUCCESS) return result;
  Call driver;
  const Context* const found = driver->contexts.find(context);
  if (found == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *device = found->ordinal;
  return CUDA_SUCCESS;
}
#endif

CUresult api::cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  Call driver;
  if (!driver) return driver.error();
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  if (const CUresult result = driver->queue(stream, &found); result != CUDA_SUCCESS) return result;
  if (driver->captures.find(*found) != nullptr) {
    driver->captures.add(*found, HostAction{function, data});
    return CUDA_SUCCESS;
  }
  driver->streams.submit(found, [function, data] { function(data); });
  return CUDA_SUCCESS;
}

CUresult api::cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                                  unsigned int flags) {
  Call driver;
  if (!driver) return driver.error();
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  if (const CUresult result = driver->queue_uncaptured(stream, &found); result != CUDA_SUCCESS) return result;
  driver->streams.submit(found, [callback, stream, data] { callback(stream, CUDA_SUCCESS, data); });
  return CUDA_SUCCESS;
}

}  // namespace gpumem::sim
