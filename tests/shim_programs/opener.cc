// A program that links no driver and opens one by the name that it is told, a hundred times.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>

namespace {

template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

/// What goes wrong, or null.
const char* use(const char* file) {
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return ::dlerror();
  if (::dlsym(library, "gpumem_shim_version") == nullptr) return "it is not the drop-in driver";
  CUcontext context = nullptr;
  CUdeviceptr at = 0;
  if (find<decltype(&::cuInit)>(library, "cuInit")(0) != CUDA_SUCCESS) return "cuInit";
  if (find<decltype(&::cuDevicePrimaryCtxRetain)>(library, "cuDevicePrimaryCtxRetain")(&context, 0) !=
      CUDA_SUCCESS)
    return "cuDevicePrimaryCtxRetain";
  if (find<decltype(&::cuCtxSetCurrent)>(library, "cuCtxSetCurrent")(context) != CUDA_SUCCESS)
    return "cuCtxSetCurrent";
  if (find<decltype(&::cuMemAlloc)>(library, "cuMemAlloc_v2")(&at, 5U << 20) != CUDA_SUCCESS)
    return "cuMemAlloc";
  if (find<decltype(&::cuMemFree)>(library, "cuMemFree_v2")(at) != CUDA_SUCCESS) return "cuMemFree";
  if (find<decltype(&::cuDevicePrimaryCtxRelease)>(library, "cuDevicePrimaryCtxRelease_v2")(0) !=
      CUDA_SUCCESS)
    return "cuDevicePrimaryCtxRelease";
  return ::dlclose(library) == 0 ? nullptr : "dlclose";
}

long entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  long threads = 0, descriptors = 0;
  for (int i = 0; i < 100; ++i) {
    if (const char* const wrong = use(argv[1]); wrong != nullptr) {
      std::fprintf(stderr, "%d: %s\n", i, wrong);
      return 1;
    }
    if (i != 0) continue;
    threads = entries("/proc/self/task");
    descriptors = entries("/proc/self/fd");
  }
  if (entries("/proc/self/task") <= threads && entries("/proc/self/fd") <= descriptors) return 0;
  std::fprintf(stderr, "threads or descriptors are left of each time\n");
  return 1;
}
