#pragma once
#include "cuda/headers.h"

// Every driver call that the project makes. cuda.h's own macros give each name its current version
// (cuMemGetInfo -> cuMemGetInfo_v2), here and at the call.
#define GPUMEM_CUDA_CALLS(CALL)           \
  CALL(cuInit)                            \
  CALL(cuDriverGetVersion)                \
  CALL(cuGetErrorName)                    \
  CALL(cuGetErrorString)                  \
  CALL(cuDeviceGetCount)                  \
  CALL(cuDeviceGet)                       \
  CALL(cuDeviceGetName)                   \
  CALL(cuDeviceGetUuid)                   \
  CALL(cuDeviceTotalMem)                  \
  CALL(cuDeviceGetAttribute)              \
  CALL(cuDeviceCanAccessPeer)             \
  CALL(cuDevicePrimaryCtxRetain)          \
  CALL(cuDevicePrimaryCtxRelease)         \
  CALL(cuDevicePrimaryCtxGetState)        \
  CALL(cuCtxPushCurrent)                  \
  CALL(cuCtxPopCurrent)                   \
  CALL(cuCtxGetCurrent)                   \
  CALL(cuCtxGetDevice)                    \
  CALL(cuCtxGetStreamPriorityRange)       \
  CALL(cuCtxSynchronize)                  \
  CALL(cuStreamGetCtx)                    \
  CALL(cuStreamIsCapturing)               \
  CALL(cuStreamWaitEvent)                 \
  CALL(cuThreadExchangeStreamCaptureMode) \
  CALL(cuEventCreate)                     \
  CALL(cuEventRecord)                     \
  CALL(cuEventQuery)                      \
  CALL(cuEventSynchronize)                \
  CALL(cuEventDestroy)                    \
  CALL(cuMemGetAllocationGranularity)     \
  CALL(cuMemCreate)                       \
  CALL(cuMemRelease)                      \
  CALL(cuMemExportToShareableHandle)      \
  CALL(cuMemImportFromShareableHandle)    \
  CALL(cuMemAddressReserve)               \
  CALL(cuMemAddressFree)                  \
  CALL(cuMemMap)                          \
  CALL(cuMemUnmap)                        \
  CALL(cuMemSetAccess)                    \
  CALL(cuMemGetInfo)                      \
  CALL(cuMemcpyHtoD)                      \
  CALL(cuMemcpyDtoH)                      \
  CALL(cuMemsetD8)

namespace gpumem::cuda {

/// The driver's functions, by the names of cuda.h.
struct Api {
#define GPUMEM_CUDA_MEMBER(name) decltype(&::name) name = nullptr;
  GPUMEM_CUDA_CALLS(GPUMEM_CUDA_MEMBER)
#undef GPUMEM_CUDA_MEMBER
  /// Null before CUDA 12.0.
  CUresult (*cuStreamGetId)(CUstream, unsigned long long*) = nullptr;
};

}  // namespace gpumem::cuda
