// A program that knows nothing of the simulation: prints what it finds in libcuda.so.1, libcuda.so and NVML.
#include <cuda.h>
#include <dlfcn.h>
#include <nvml.h>

#include <cstdio>

namespace {

template <class Function>
Function* find(const char* library, const char* name) {
  void* const handle = ::dlopen(library, RTLD_NOW);
  if (handle == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  return handle == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle, name));
}

}  // namespace

int main() {
  auto* const init = find<decltype(cuInit)>("libcuda.so.1", "cuInit");
  auto* const total = find<decltype(cuDeviceTotalMem)>("libcuda.so", "cuDeviceTotalMem_v2");
  auto* const nvml = find<decltype(nvmlInit_v2)>("libnvidia-ml.so.1", "nvmlInit_v2");
  if (init == nullptr || total == nullptr || nvml == nullptr) return 1;
  const int result = init(0);
  std::size_t bytes = 0;
  if (result == CUDA_SUCCESS) total(&bytes, 0);
  std::printf("init %d total %zu nvml %d\n", result, bytes, nvml());
}
