// Graphs are not simulated, so no stream is ever being captured.
#include <cuda.h>

#include <utility>

#include "calls.h"
#include "sim/driver/driver.h"

namespace gpumem::sim {
namespace {

CUresult tell_none(CUstream stream, CUstreamCaptureStatus* status) {
  Call driver;
  if (!driver) return driver.error();
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamRef found;
  if (const CUresult result = driver->stream(stream, &found); result != CUDA_SUCCESS) return result;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return tell_none(stream, status);
}

CUresult api::cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(own, *mode);
  return CUDA_SUCCESS;
}

// What else a capture could tell is left as it is where there is none, as the real calls leave it.
CUresult api::cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* /*id*/) {
  return tell_none(stream, status);
}
CUresult api::cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* /*id*/,
                                        CUgraph* /*graph*/, const CUgraphNode** /*dependencies*/,
                                        size_t* /*count*/) {
  return tell_none(stream, status);
}
#if CUDA_VERSION >= 12030
CUresult api::cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* /*id*/,
                                        CUgraph* /*graph*/, const CUgraphNode** /*dependencies*/,
                                        const CUgraphEdgeData** /*edges*/, size_t* /*count*/) {
  return tell_none(stream, status);
}
#endif

}  // namespace gpumem::sim
