// A libcudart.so.12 for a TensorFlow that starts no kernel, in place of NVIDIA's, which refuses the simulated
// driver: the few calls of the CUDA runtime by which TensorFlow sets up its devices, by the driver's own. It
// opens libcuda.so.1 by name, as the runtime does. Results are numbers, since the driver's codes are the
// runtime's for all that happens here.
#include <cuda.h>
#include <dlfcn.h>

namespace {

constexpr int kRuntimeVersion = 12050;  // what TensorFlow 2.20 is built with
constexpr int kDevices = 16;
constexpr int kInvalidDevice = 101;

template <class Function>
Function* driver_call(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return reinterpret_cast<Function*>(::dlsym(driver, name));
}

thread_local int current_device = 0;
CUcontext primary_contexts[kDevices];

}  // namespace

extern "C" {

int cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return 0;
}
int cudaGetDeviceCount(int* count) {
  return driver_call<decltype(::cuDeviceGetCount)>("cuDeviceGetCount")(count);
}
int cudaGetDevice(int* device) {
  *device = current_device;
  return 0;
}
/// Keeps the device's primary context from the first time on.
int cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return kInvalidDevice;
  CUcontext& context = primary_contexts[device];
  if (context == nullptr) {
    const CUresult retained =
        driver_call<decltype(::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain")(&context, device);
    if (retained != CUDA_SUCCESS) return retained;
  }
  current_device = device;
  return driver_call<decltype(::cuCtxSetCurrent)>("cuCtxSetCurrent")(context);
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return driver_call<decltype(::cuCtxGetStreamPriorityRange)>("cuCtxGetStreamPriorityRange")(least, greatest);
}
int cudaGetLastError() { return 0; }
const char* cudaGetErrorString(int /*error*/) {
  return "a call that the stand-in for the CUDA runtime lacks";
}

}  // extern "C"
