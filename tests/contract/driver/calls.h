#pragma once
#include "cuda/headers.h"

// The driver calls that tests make past the port, with the CUDA version in which each took its present form.
// Found as programs find them: by base name and version through cuGetProcAddress.
#define GPUMEM_CONTRACT_CALLS(CALL)                   \
  CALL(cuInit, 2000)                                  \
  CALL(cuDriverGetVersion, 2020)                      \
  CALL(cuGetErrorName, 6000)                          \
  CALL(cuGetErrorString, 6000)                        \
  CALL(cuDeviceGetCount, 2000)                        \
  CALL(cuDeviceGet, 2000)                             \
  CALL(cuDeviceTotalMem, 3020)                        \
  CALL(cuDeviceGetAttribute, 2000)                    \
  CALL(cuDeviceCanAccessPeer, 4000)                   \
  CALL(cuDeviceGetDefaultMemPool, 11020)              \
  CALL(cuDeviceGetMemPool, 11020)                     \
  CALL(cuDeviceSetMemPool, 11020)                     \
  CALL(cuDevicePrimaryCtxRetain, 7000)                \
  CALL(cuDevicePrimaryCtxRelease, 11000)              \
  CALL(cuDevicePrimaryCtxGetState, 7000)              \
  CALL(cuCtxDestroy, 4000)                            \
  CALL(cuCtxPushCurrent, 4000)                        \
  CALL(cuCtxPopCurrent, 4000)                         \
  CALL(cuCtxSetCurrent, 4000)                         \
  CALL(cuCtxGetCurrent, 4000)                         \
  CALL(cuCtxGetDevice, 2000)                          \
  CALL(cuCtxGetStreamPriorityRange, 5050)             \
  CALL(cuCtxSynchronize, 2000)                        \
  CALL(cuCtxEnablePeerAccess, 4000)                   \
  CALL(cuCtxDisablePeerAccess, 4000)                  \
  CALL(cuMemGetInfo, 3020)                            \
  CALL(cuMemAlloc, 3020)                              \
  CALL(cuMemAllocPitch, 3020)                         \
  CALL(cuMemAllocManaged, 6000)                       \
  CALL(cuMemFree, 3020)                               \
  CALL(cuMemGetAddressRange, 3020)                    \
  CALL(cuPointerGetAttribute, 4000)                   \
  CALL(cuPointerGetAttributes, 7000)                  \
  CALL(cuPointerSetAttribute, 6000)                   \
  CALL(cuMemAllocHost, 3020)                          \
  CALL(cuMemHostAlloc, 2020)                          \
  CALL(cuMemFreeHost, 2000)                           \
  CALL(cuMemHostGetDevicePointer, 3020)               \
  CALL(cuMemHostGetFlags, 2030)                       \
  CALL(cuMemHostRegister, 6050)                       \
  CALL(cuMemHostUnregister, 4000)                     \
  CALL(cuMemcpy, 4000)                                \
  CALL(cuMemcpyPeer, 4000)                            \
  CALL(cuMemcpyHtoD, 3020)                            \
  CALL(cuMemcpyDtoH, 3020)                            \
  CALL(cuMemcpyDtoD, 3020)                            \
  CALL(cuMemcpy2D, 3020)                              \
  CALL(cuMemcpyHtoDAsync, 3020)                       \
  CALL(cuMemcpyDtoHAsync, 3020)                       \
  CALL(cuMemcpyDtoDAsync, 3020)                       \
  CALL(cuMemcpy2DAsync, 3020)                         \
  CALL(cuMemsetD8, 3020)                              \
  CALL(cuMemsetD16, 3020)                             \
  CALL(cuMemsetD32, 3020)                             \
  CALL(cuMemsetD2D8, 3020)                            \
  CALL(cuMemsetD2D16, 3020)                           \
  CALL(cuMemsetD2D32, 3020)                           \
  CALL(cuMemsetD8Async, 3020)                         \
  CALL(cuMemsetD32Async, 3020)                        \
  CALL(cuMemGetAllocationGranularity, 10020)          \
  CALL(cuMemCreate, 10020)                            \
  CALL(cuMemRelease, 10020)                           \
  CALL(cuMemRetainAllocationHandle, 11000)            \
  CALL(cuMemGetAllocationPropertiesFromHandle, 10020) \
  CALL(cuMemExportToShareableHandle, 10020)           \
  CALL(cuMemImportFromShareableHandle, 10020)         \
  CALL(cuMemAddressReserve, 10020)                    \
  CALL(cuMemAddressFree, 10020)                       \
  CALL(cuMemMap, 10020)                               \
  CALL(cuMemUnmap, 10020)                             \
  CALL(cuMemSetAccess, 10020)                         \
  CALL(cuMemGetAccess, 10020)                         \
  CALL(cuStreamCreate, 2000)                          \
  CALL(cuStreamDestroy, 4000)                         \
  CALL(cuStreamQuery, 2000)                           \
  CALL(cuStreamSynchronize, 2000)                     \
  CALL(cuStreamWaitEvent, 3020)                       \
  CALL(cuLaunchHostFunc, 10000)                       \
  CALL(cuEventCreate, 2000)                           \
  CALL(cuEventDestroy, 4000)                          \
  CALL(cuEventRecord, 2000)                           \
  CALL(cuEventQuery, 2000)                            \
  CALL(cuEventSynchronize, 2000)                      \
  CALL(cuEventElapsedTime, 2000)                      \
  CALL(cuStreamBeginCapture, 10010)                   \
  CALL(cuStreamEndCapture, 10000)                     \
  CALL(cuStreamIsCapturing, 10000)                    \
  CALL(cuThreadExchangeStreamCaptureMode, 10010)      \
  CALL(cuGraphGetNodes, 10000)                        \
  CALL(cuGraphNodeGetType, 10000)                     \
  CALL(cuGraphInstantiateWithFlags, 11040)            \
  CALL(cuGraphLaunch, 10000)                          \
  CALL(cuGraphExecDestroy, 10000)                     \
  CALL(cuGraphDestroy, 10000)                         \
  CALL(cuDeviceGraphMemTrim, 11040)                   \
  CALL(cuDeviceGetGraphMemAttribute, 11040)           \
  CALL(cuIpcGetMemHandle, 4010)                       \
  CALL(cuIpcOpenMemHandle, 11000)                     \
  CALL(cuIpcCloseMemHandle, 4010)                     \
  CALL(cuIpcGetEventHandle, 4010)                     \
  CALL(cuIpcOpenEventHandle, 4010)                    \
  CALL(cuMemAllocAsync, 11020)                        \
  CALL(cuMemAllocFromPoolAsync, 11020)                \
  CALL(cuMemFreeAsync, 11020)                         \
  CALL(cuMemPoolCreate, 11020)                        \
  CALL(cuMemPoolDestroy, 11020)                       \
  CALL(cuMemPoolTrimTo, 11020)                        \
  CALL(cuMemPoolGetAttribute, 11020)                  \
  CALL(cuMemPoolSetAttribute, 11020)                  \
  CALL(cuMemPoolExportToShareableHandle, 11020)       \
  CALL(cuMemPoolImportFromShareableHandle, 11020)     \
  CALL(cuMemPoolExportPointer, 11020)                 \
  CALL(cuMemPoolImportPointer, 11020)

namespace gpumem::contract {

/// What cuGetProcAddress of the driver under test answers. Its flags and status are plain numbers here, since
/// the types are younger than the oldest headers that will do.
struct Found {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  void* address = nullptr;
  int status = -1;  ///< 0: found, 1: no such symbol, 2: not in this version; -1: not said (before CUDA 12)
};
Found find(const char* name, int version, unsigned long long flags = 0);

template <class Function>
struct Missing;
template <class... Arguments>
struct Missing<CUresult (*)(Arguments...)> {
  static CUresult answer(Arguments...) { return CUDA_ERROR_NOT_FOUND; }
};

/// The driver's function `name` in its form of CUDA `version`, or one that answers CUDA_ERROR_NOT_FOUND if
/// the driver has none:  auto create = raw<decltype(&::cuMemPoolCreate)>("cuMemPoolCreate", 11020);
template <class Function>
Function raw(const char* name, int version, unsigned long long flags = 0) {
  void* const address = find(name, version, flags).address;
  return address != nullptr ? reinterpret_cast<Function>(address) : &Missing<Function>::answer;
}

/// In a Process only: every call of the list. Works before cuInit, and initialises nothing.
struct Calls {
#define GPUMEM_CONTRACT_MEMBER(name, version) decltype(&::name) name = nullptr;
  GPUMEM_CONTRACT_CALLS(GPUMEM_CONTRACT_MEMBER)
#undef GPUMEM_CONTRACT_MEMBER
  /// By hand, since newer headers give the name another form.
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;
};
const Calls& calls();

}  // namespace gpumem::contract
