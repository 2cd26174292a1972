// gpumem_shim_started LIBCUDA [BYTES [threaded]]: starts the driver, writes a byte, and ends. With BYTES it
// allocates so much first; threaded: while another thread rests. Status 1: the driver does not start, or has
// no memory.
// gpumem_shim_started --hook LIBCUDA HOOK: opens both, makes HOOK's first calls, as far as it has them and
// whatever they answer, writes a byte, and ends. Status 1: one cannot be opened.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

bool allocates(void* library, std::size_t bytes) {
  CUcontext context = nullptr;
  CUdeviceptr at = 0;
  return find<decltype(::cuDevicePrimaryCtxRetain)>(library, "cuDevicePrimaryCtxRetain")(&context, 0) ==
             CUDA_SUCCESS &&
         find<decltype(::cuCtxSetCurrent)>(library, "cuCtxSetCurrent")(context) == CUDA_SUCCESS &&
         find<decltype(::cuMemAlloc_v2)>(library, "cuMemAlloc_v2")(&at, bytes) == CUDA_SUCCESS;
}

int try_hook(const char* driver, const char* file) {
  void* const library =
      ::dlopen(driver, RTLD_NOW | RTLD_LOCAL) != nullptr ? ::dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) return EXIT_FAILURE;
  if (auto* const init = find<decltype(::cuInit)>(library, "cuInit"); init != nullptr) (void)init(0);
  int version = 0;
  if (auto* const call = find<decltype(::cuDriverGetVersion)>(library, "cuDriverGetVersion"); call != nullptr)
    (void)call(&version);
  return ::write(STDOUT_FILENO, "!", 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--hook") == 0) return try_hook(argv[2], argv[3]);
  void* const library = argc < 2 ? nullptr : ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return EXIT_FAILURE;
  if (argc > 3) std::thread([] { ::pause(); }).detach();
  if (find<decltype(::cuInit)>(library, "cuInit")(0) != CUDA_SUCCESS) return EXIT_FAILURE;
  if (argc > 2 && !allocates(library, std::strtoull(argv[2], nullptr, 10))) return EXIT_FAILURE;
  return ::write(STDOUT_FILENO, "!", 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
