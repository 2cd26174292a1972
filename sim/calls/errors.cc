// Names and texts of results.
#include <cuda.h>

#include "calls.h"
#include "sim/control/result_names.h"

namespace gpumem::sim {
namespace {

CUresult answer(CUresult error, const char** out, const char* ResultName::*field) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  for (const ResultName& known : cuda_results()) {
    if (known.number == static_cast<int>(error)) *out = known.*field;
  }
  return *out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult api::cuGetErrorName(CUresult error, const char** out) {
  return answer(error, out, &ResultName::name);
}

CUresult api::cuGetErrorString(CUresult error, const char** out) {
  return answer(error, out, &ResultName::text);
}

}  // namespace gpumem::sim
