// The CUDA runtime for CuPy's module of it (suites/cupy.sh) and for allocators (bench/peers), in place of
// NVIDIA's, which refuses the simulated driver: memory, pools, streams, events, captures and devices, each by
// the driver's call of the same name. The numbers of errors, attributes and flags are the driver's where
// nothing else is said. For CuPy, what is missing here answers cudaErrorNotSupported.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstring>

namespace {

constexpr int kDevices = 16;

template <class Function>
Function* driver_call(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return reinterpret_cast<Function*>(::dlsym(driver, name));
}
// By the name that cuda.h gives the call's latest version. Found once: allocators are timed on this runtime.
#define GPUMEM_NAMED(name)                                           \
  ([] {                                                              \
    static auto* const found = driver_call<decltype(::name)>(#name); \
    return found;                                                    \
  }())
#define GPUMEM_CALL(name) GPUMEM_NAMED(name)

cudaError_t error_of(CUresult result) { return static_cast<cudaError_t>(result); }

thread_local int current_device = 0;

/// The device's primary context, kept from the first time on; null if there is none.
CUcontext primary(int device) {
  static CUcontext contexts[kDevices];
  static const CUresult initialized = GPUMEM_CALL(cuInit)(0);
  if (initialized != CUDA_SUCCESS || device < 0 || device >= kDevices) return nullptr;
  CUcontext& context = contexts[device];
  if (context == nullptr) (void)GPUMEM_CALL(cuDevicePrimaryCtxRetain)(&context, device);
  return context;
}

/// Makes the current device's context current where none is. Then `call`.
template <class Call>
cudaError_t entered(Call call) {
  CUcontext now = nullptr;
  if (primary(current_device) == nullptr) return cudaErrorInvalidDevice;
  CUresult result = GPUMEM_CALL(cuCtxGetCurrent)(&now);
  if (result == CUDA_SUCCESS && now == nullptr)
    result = GPUMEM_CALL(cuCtxSetCurrent)(primary(current_device));
  return error_of(result == CUDA_SUCCESS ? call() : result);
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToHost: return std::memcpy(to, from, bytes), CUDA_SUCCESS;
    case cudaMemcpyHostToDevice: return GPUMEM_CALL(cuMemcpyHtoD)(address(to), from, bytes);
    case cudaMemcpyDeviceToHost: return GPUMEM_CALL(cuMemcpyDtoH)(to, address(from), bytes);
    case cudaMemcpyDeviceToDevice: return GPUMEM_CALL(cuMemcpyDtoD)(address(to), address(from), bytes);
    default: return GPUMEM_CALL(cuMemcpy)(address(to), address(from), bytes);
  }
}
CUresult copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, CUstream stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return GPUMEM_CALL(cuMemcpyHtoDAsync)(address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost: return GPUMEM_CALL(cuMemcpyDtoHAsync)(to, address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return GPUMEM_CALL(cuMemcpyDtoDAsync)(address(to), address(from), bytes, stream);
    default: return GPUMEM_CALL(cuMemcpyAsync)(address(to), address(from), bytes, stream);
  }
}

CUmemLocation location_of(cudaMemLocation location) {
  CUmemLocation same{};
  same.type = static_cast<CUmemLocationType>(location.type);
  same.id = location.id;
  return same;
}

int attribute(CUdevice_attribute which, int device) {
  int value = 0;
  (void)GPUMEM_CALL(cuDeviceGetAttribute)(&value, which, device);
  return value;
}

cudaError_t describe(cudaPointerAttributes& out, const void* pointer) {
  int kind = 0, managed = 0, device = -2;
  CUdeviceptr there = 0;
  void* here = nullptr;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void* answers[] = {&kind, &managed, &device, &there, &here};
  const CUresult result = GPUMEM_CALL(cuPointerGetAttributes)(5, asked, answers, address(pointer));
  if (result != CUDA_SUCCESS) return error_of(result);
  out = {};
  out.type = managed != 0                   ? cudaMemoryTypeManaged
             : kind == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
             : kind == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                                            : cudaMemoryTypeUnregistered;
  out.device = device;
  out.devicePointer = reinterpret_cast<void*>(there);
  out.hostPointer = out.type == cudaMemoryTypeUnregistered ? const_cast<void*>(pointer) : here;
  return cudaSuccess;
}

}  // namespace

/// A call of the runtime that is one of the driver's, in the current device's context.
#define GPUMEM_SAME(name, parameters, driver, ...)                    \
  cudaError_t name parameters {                                       \
    return entered([&] { return GPUMEM_CALL(driver)(__VA_ARGS__); }); \
  }

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const char* name = nullptr;
  if (error == cudaErrorMemoryAllocation) return "cudaErrorMemoryAllocation";
  (void)GPUMEM_CALL(cuGetErrorName)(static_cast<CUresult>(error), &name);
  return name == nullptr ? "unknown error" : name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  (void)GPUMEM_CALL(cuGetErrorString)(static_cast<CUresult>(error), &text);
  return text == nullptr ? "unknown error" : text;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaDriverGetVersion(int* version) { return error_of(GPUMEM_CALL(cuDriverGetVersion)(version)); }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  (void)primary(0);
  return error_of(GPUMEM_CALL(cuDeviceGetCount)(count));
}
cudaError_t cudaGetDevice(int* device) {
  CUcontext now = nullptr;
  (void)primary(0);
  if (GPUMEM_CALL(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now != nullptr)
    return error_of(GPUMEM_CALL(cuCtxGetDevice)(device));
  return *device = current_device, cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  const CUcontext context = primary(device);
  if (context == nullptr) return cudaErrorInvalidDevice;
  current_device = device;
  return error_of(GPUMEM_CALL(cuCtxSetCurrent)(context));
}
GPUMEM_SAME(cudaDeviceSynchronize, (), cuCtxSynchronize, )
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  (void)primary(0);
  return error_of(GPUMEM_CALL(cuDeviceGetAttribute)(value, static_cast<CUdevice_attribute>(which), device));
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  (void)primary(0);
  return error_of(GPUMEM_CALL(cuDeviceGetByPCIBusId)(device, id));
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  (void)primary(0);
  return error_of(GPUMEM_CALL(cuDeviceGetPCIBusId)(id, length, device));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (primary(device) == nullptr) return cudaErrorInvalidDevice;
  *out = {};
  (void)GPUMEM_CALL(cuDeviceGetName)(out->name, sizeof out->name, device);
  (void)GPUMEM_CALL(cuDeviceTotalMem)(&out->totalGlobalMem, device);
  out->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  out->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  out->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  out->warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
  out->textureAlignment = static_cast<size_t>(attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device));
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  (void)primary(0);
  return error_of(GPUMEM_CALL(cuDeviceCanAccessPeer)(can, device, peer));
}
GPUMEM_SAME(cudaDeviceEnablePeerAccess, (int peer, unsigned flags), cuCtxEnablePeerAccess, primary(peer),
            flags)
GPUMEM_SAME(cudaDeviceDisablePeerAccess, (int peer), cuCtxDisablePeerAccess, primary(peer))
GPUMEM_SAME(cudaDeviceGetLimit, (size_t * value, cudaLimit limit), cuCtxGetLimit, value,
            static_cast<CUlimit>(limit))
GPUMEM_SAME(cudaDeviceSetLimit, (cudaLimit limit, size_t value), cuCtxSetLimit, static_cast<CUlimit>(limit),
            value)

GPUMEM_SAME(cudaIpcGetMemHandle, (cudaIpcMemHandle_t * out, void* at), cuIpcGetMemHandle,
            reinterpret_cast<CUipcMemHandle*>(out), address(at))
GPUMEM_SAME(cudaIpcOpenMemHandle, (void** at, cudaIpcMemHandle_t handle, unsigned flags), cuIpcOpenMemHandle,
            reinterpret_cast<CUdeviceptr*>(at), reinterpret_cast<CUipcMemHandle&>(handle), flags)
GPUMEM_SAME(cudaIpcCloseMemHandle, (void* at), cuIpcCloseMemHandle, address(at))
GPUMEM_SAME(cudaIpcGetEventHandle, (cudaIpcEventHandle_t * out, cudaEvent_t event), cuIpcGetEventHandle,
            reinterpret_cast<CUipcEventHandle*>(out), event)
GPUMEM_SAME(cudaIpcOpenEventHandle, (cudaEvent_t * event, cudaIpcEventHandle_t handle), cuIpcOpenEventHandle,
            event, reinterpret_cast<CUipcEventHandle&>(handle))

cudaError_t cudaMalloc(void** at, size_t size) {
  *at = nullptr;
  return entered([&] {
    return size == 0 ? CUDA_SUCCESS : GPUMEM_CALL(cuMemAlloc)(reinterpret_cast<CUdeviceptr*>(at), size);
  });
}
GPUMEM_SAME(cudaMallocManaged, (void** at, size_t size, unsigned flags), cuMemAllocManaged,
            reinterpret_cast<CUdeviceptr*>(at), size, flags)
GPUMEM_SAME(cudaMallocAsync, (void** at, size_t size, cudaStream_t stream), cuMemAllocAsync,
            reinterpret_cast<CUdeviceptr*>(at), size, stream)
GPUMEM_SAME(cudaMallocFromPoolAsync, (void** at, size_t size, cudaMemPool_t pool, cudaStream_t stream),
            cuMemAllocFromPoolAsync, reinterpret_cast<CUdeviceptr*>(at), size, pool, stream)
cudaError_t cudaFree(void* at) {
  return entered([&] { return at == nullptr ? CUDA_SUCCESS : GPUMEM_CALL(cuMemFree)(address(at)); });
}
GPUMEM_SAME(cudaFreeAsync, (void* at, cudaStream_t stream), cuMemFreeAsync, address(at), stream)
GPUMEM_SAME(cudaHostAlloc, (void** at, size_t size, unsigned flags), cuMemHostAlloc, at, size, flags)
GPUMEM_SAME(cudaHostRegister, (void* at, size_t size, unsigned flags), cuMemHostRegister, at, size, flags)
GPUMEM_SAME(cudaHostUnregister, (void* at), cuMemHostUnregister, at)
GPUMEM_SAME(cudaFreeHost, (void* at), cuMemFreeHost, at)
GPUMEM_SAME(cudaMemGetInfo, (size_t * free, size_t* total), cuMemGetInfo, free, total)

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return entered([&] { return copy(to, from, bytes, kind); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return entered([&] { return copy_async(to, from, bytes, kind, stream); });
}
GPUMEM_SAME(cudaMemcpyPeer, (void* to, int to_device, const void* from, int from_device, size_t bytes),
            cuMemcpyPeer, address(to), primary(to_device), address(from), primary(from_device), bytes)
GPUMEM_SAME(cudaMemcpyPeerAsync,
            (void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream),
            cuMemcpyPeerAsync, address(to), primary(to_device), address(from), primary(from_device), bytes,
            stream)
GPUMEM_SAME(cudaMemset, (void* at, int value, size_t bytes), cuMemsetD8, address(at),
            static_cast<unsigned char>(value), bytes)
GPUMEM_SAME(cudaMemsetAsync, (void* at, int value, size_t bytes, cudaStream_t stream), cuMemsetD8Async,
            address(at), static_cast<unsigned char>(value), bytes, stream)
GPUMEM_SAME(cudaMemPrefetchAsync,
            (const void* at, size_t bytes, cudaMemLocation where, unsigned flags, cudaStream_t stream),
            cuMemPrefetchAsync, address(at), bytes, location_of(where), flags, stream)
GPUMEM_SAME(cudaMemAdvise, (const void* at, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation where),
            cuMemAdvise, address(at), bytes, static_cast<CUmem_advise>(advice), location_of(where))
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  (void)primary(current_device);
  return describe(*out, pointer);
}

GPUMEM_SAME(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device), cuDeviceGetDefaultMemPool, pool,
            device)
GPUMEM_SAME(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), cuDeviceGetMemPool, pool, device)
GPUMEM_SAME(cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), cuDeviceSetMemPool, device, pool)
GPUMEM_SAME(cudaMemPoolCreate, (cudaMemPool_t * pool, const cudaMemPoolProps* properties), cuMemPoolCreate,
            pool, reinterpret_cast<const CUmemPoolProps*>(properties))
GPUMEM_SAME(cudaMemPoolDestroy, (cudaMemPool_t pool), cuMemPoolDestroy, pool)
GPUMEM_SAME(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), cuMemPoolTrimTo, pool, keep)
GPUMEM_SAME(cudaMemPoolGetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr which, void* value),
            cuMemPoolGetAttribute, pool, static_cast<CUmemPool_attribute>(which), value)
GPUMEM_SAME(cudaMemPoolSetAttribute, (cudaMemPool_t pool, cudaMemPoolAttr which, void* value),
            cuMemPoolSetAttribute, pool, static_cast<CUmemPool_attribute>(which), value)

GPUMEM_SAME(cudaStreamCreate, (cudaStream_t * stream), cuStreamCreate, stream, 0)
GPUMEM_SAME(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), cuStreamCreate, stream, flags)
GPUMEM_SAME(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned flags, int priority),
            cuStreamCreateWithPriority, stream, flags, priority)
GPUMEM_SAME(cudaStreamGetId, (cudaStream_t stream, unsigned long long* id), cuStreamGetId, stream, id)
GPUMEM_SAME(cudaStreamGetFlags, (cudaStream_t stream, unsigned* flags), cuStreamGetFlags, stream, flags)
GPUMEM_SAME(cudaStreamGetPriority, (cudaStream_t stream, int* priority), cuStreamGetPriority, stream,
            priority)
GPUMEM_SAME(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy, stream)
GPUMEM_SAME(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize, stream)
GPUMEM_SAME(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery, stream)
GPUMEM_SAME(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), cuStreamWaitEvent,
            stream, event, flags)
GPUMEM_SAME(cudaStreamAddCallback,
            (cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned flags), cuStreamAddCallback,
            stream, reinterpret_cast<CUstreamCallback>(call), data, flags)
GPUMEM_SAME(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t call, void* data), cuLaunchHostFunc,
            stream, call, data)
GPUMEM_SAME(cudaStreamBeginCapture, (cudaStream_t stream, cudaStreamCaptureMode mode), cuStreamBeginCapture,
            stream, static_cast<CUstreamCaptureMode>(mode))
GPUMEM_SAME(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t* graph), cuStreamEndCapture, stream,
            graph)
GPUMEM_SAME(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status),
            cuStreamIsCapturing, stream, reinterpret_cast<CUstreamCaptureStatus*>(status))
GPUMEM_SAME(cudaEventCreate, (cudaEvent_t * event), cuEventCreate, event, 0)
GPUMEM_SAME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags), cuEventCreate, event, flags)
GPUMEM_SAME(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy, event)
GPUMEM_SAME(cudaEventElapsedTime, (float* milliseconds, cudaEvent_t from, cudaEvent_t to), cuEventElapsedTime,
            milliseconds, from, to)
GPUMEM_SAME(cudaEventQuery, (cudaEvent_t event), cuEventQuery, event)
GPUMEM_SAME(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord, event, stream)
GPUMEM_SAME(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize, event)

GPUMEM_SAME(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy, graph)
GPUMEM_SAME(cudaGraphExecDestroy, (cudaGraphExec_t graph), cuGraphExecDestroy, graph)
GPUMEM_SAME(cudaGraphInstantiate, (cudaGraphExec_t * out, cudaGraph_t graph, unsigned long long flags),
            cuGraphInstantiate, out, graph, flags)
GPUMEM_SAME(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t stream), cuGraphLaunch, graph, stream)
GPUMEM_SAME(cudaGraphUpload, (cudaGraphExec_t graph, cudaStream_t stream), cuGraphUpload, graph, stream)
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
