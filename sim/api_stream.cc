// Streams and events. All work is done when its call returns, so they only exist, wait for nothing and tell
// time.
#include <cuda.h>

#include <chrono>
#include <cstdint>

#include "sim/api_alias.h"
#include "sim/driver.h"

using namespace gpumem::sim;

namespace {

using Objects = std::unordered_map<std::uint64_t, std::uint64_t>;

template <class Handle>
std::uint64_t number(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

/// Adds an object to `objects`, a member of the driver, and answers it as `out`.
template <class Handle>
CUresult create(Handle* out, Objects Driver::*objects) {
  Call driver;
  if (!driver) return driver.error();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  if (const CUresult result = driver->current(&context); result != CUDA_SUCCESS) return result;
  const std::uint64_t id = driver->last_object += 16;
  ((*driver.operator->()).*objects)[id] = 0;
  *out = reinterpret_cast<Handle>(id);
  return CUDA_SUCCESS;
}

template <class Handle>
CUresult destroy(Handle handle, Objects Driver::*objects) {
  Call driver;
  if (!driver) return driver.error();
  return ((*driver.operator->()).*objects).erase(number(handle)) == 1 ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_INVALID_HANDLE;
}

bool is_stream(Call& driver, CUstream stream) {
  const std::uint64_t id = number(stream);
  return id <= 2 || driver->streams.contains(id);  // 0, 1, 2: default, legacy, per thread
}

CUresult check_stream(CUstream stream) {
  Call driver;
  if (!driver) return driver.error();
  return is_stream(driver, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check_event(CUevent event) {
  Call driver;
  if (!driver) return driver.error();
  return driver->events.contains(number(event)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

CUresult cuStreamCreate(CUstream* out, unsigned int) { return create(out, &Driver::streams); }
CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int, int) {
  return create(out, &Driver::streams);
}
CUresult cuStreamDestroy(CUstream stream) { return destroy(stream, &Driver::streams); }
CUresult cuStreamSynchronize(CUstream stream) { return check_stream(stream); }
CUresult cuStreamQuery(CUstream stream) { return check_stream(stream); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  const CUresult result = check_stream(stream);
  return result == CUDA_SUCCESS ? check_event(event) : result;
}

CUresult cuEventCreate(CUevent* out, unsigned int) { return create(out, &Driver::events); }
CUresult cuEventDestroy(CUevent event) { return destroy(event, &Driver::events); }
CUresult cuEventSynchronize(CUevent event) { return check_event(event); }
CUresult cuEventQuery(CUevent event) { return check_event(event); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  Call driver;
  if (!driver) return driver.error();
  const auto found = driver->events.find(number(event));
  if (found == driver->events.end() || !is_stream(driver, stream)) return CUDA_ERROR_INVALID_HANDLE;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  found->second = static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
  return CUDA_SUCCESS;
}

#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  Call driver;
  if (!driver) return driver.error();
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto first = driver->events.find(number(start));
  const auto last = driver->events.find(number(end));
  if (first == driver->events.end() || last == driver->events.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (first->second == 0 || last->second == 0) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = static_cast<float>(static_cast<std::int64_t>(last->second - first->second)) / 1e6F;
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 12080
GPUMEM_SIM_ALIAS(cuEventElapsedTime_v2, cuEventElapsedTime);
#endif
#undef cuStreamDestroy
#undef cuEventDestroy
GPUMEM_SIM_ALIAS(cuStreamDestroy, cuStreamDestroy_v2);
GPUMEM_SIM_ALIAS(cuEventDestroy, cuEventDestroy_v2);
GPUMEM_SIM_ALIAS(cuStreamSynchronize_ptsz, cuStreamSynchronize);
GPUMEM_SIM_ALIAS(cuStreamQuery_ptsz, cuStreamQuery);
GPUMEM_SIM_ALIAS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent);
GPUMEM_SIM_ALIAS(cuEventRecord_ptsz, cuEventRecord);
