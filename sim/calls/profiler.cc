// The profiler's switches: there is nothing to profile, so they only answer.
#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {

CUresult api::cuProfilerStart() {
  return with_current([](Call&, const Context&) { return CUDA_SUCCESS; });
}
CUresult api::cuProfilerStop() {
  return with_current([](Call&, const Context&) { return CUDA_SUCCESS; });
}

/// Refused by the real driver too, since CUDA 11.
CUresult api::cuProfilerInitialize(const char* /*config*/, const char* /*output*/, int /*mode*/) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace gpumem::sim
