// A program that links no driver and opens one by the name that it is told, a hundred times. It finds the
// calls by their names, or, with a second argument, as the CUDA runtime does: by the one call that it finds
// so.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>

namespace {

/// How calls are found in an opened library.
struct Finder {
  void* library;
  decltype(&::cuGetProcAddress_v2) look_up = nullptr;  ///< null: by their names

  /// `base`  without the version, which `name` has.
  template <class Function>
  Function find(const char* base, const char* name) const {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    if (look_up == nullptr)
      found = ::dlsym(library, name);
    else if (look_up(base, &found, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) != CUDA_SUCCESS)
      return nullptr;
    return reinterpret_cast<Function>(found);
  }
};

/// Whether memory that is allocated by the calls is the drop-in driver's: its total is the limit of 1 GiB.
const char* allocate(const Finder& by) {
  CUdeviceptr at = 0;
  std::size_t total = 0;
  if (by.find<decltype(&::cuMemGetInfo)>("cuMemGetInfo", "cuMemGetInfo_v2")(nullptr, &total) !=
          CUDA_SUCCESS ||
      total != std::size_t{1} << 30)
    return "cuMemGetInfo";
  if (by.find<decltype(&::cuMemAlloc)>("cuMemAlloc", "cuMemAlloc_v2")(&at, 5U << 20) != CUDA_SUCCESS)
    return "cuMemAlloc";
  if (by.find<decltype(&::cuMemFree)>("cuMemFree", "cuMemFree_v2")(at) != CUDA_SUCCESS) return "cuMemFree";
  return nullptr;
}

/// The error, or null.
const char* use(const char* file, bool as_runtime) {
  Finder by{::dlopen(file, RTLD_NOW | RTLD_LOCAL)};
  if (by.library == nullptr) return ::dlerror();
  if (::dlsym(by.library, "gpumem_shim_version") == nullptr) return "it is not the drop-in driver";
  if (as_runtime) {
    by.look_up = reinterpret_cast<decltype(by.look_up)>(::dlsym(by.library, "cuGetProcAddress_v2"));
    if (by.look_up == nullptr) return "cuGetProcAddress_v2";
  }
  CUcontext context = nullptr;
  if (by.find<decltype(&::cuInit)>("cuInit", "cuInit")(0) != CUDA_SUCCESS) return "cuInit";
  if (by.find<decltype(&::cuDevicePrimaryCtxRetain)>("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain")(
          &context, 0) != CUDA_SUCCESS)
    return "cuDevicePrimaryCtxRetain";
  if (by.find<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent", "cuCtxSetCurrent")(context) != CUDA_SUCCESS)
    return "cuCtxSetCurrent";
  if (const char* const wrong = allocate(by); wrong != nullptr) return wrong;
  if (by.find<decltype(&::cuDevicePrimaryCtxRelease)>("cuDevicePrimaryCtxRelease",
                                                      "cuDevicePrimaryCtxRelease_v2")(0) != CUDA_SUCCESS)
    return "cuDevicePrimaryCtxRelease";
  return ::dlclose(by.library) == 0 ? nullptr : "dlclose";
}

long entries(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  long threads = 0, descriptors = 0;
  for (int i = 0; i < 100; ++i) {
    if (const char* const wrong = use(argv[1], argc == 3); wrong != nullptr) {
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
