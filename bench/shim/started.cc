// gpumem_shim_started LIBCUDA [BYTES [threaded]]: starts the driver, writes a byte, and ends. With BYTES it
// allocates so much first; threaded: while another thread rests. Status 1: the driver does not start, or has
// no memory.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
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

}  // namespace

int main(int argc, char** argv) {
  void* const library = argc < 2 ? nullptr : ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return EXIT_FAILURE;
  if (argc > 3) std::thread([] { ::pause(); }).detach();
  if (find<decltype(::cuInit)>(library, "cuInit")(0) != CUDA_SUCCESS) return EXIT_FAILURE;
  if (argc > 2 && !allocates(library, std::strtoull(argv[2], nullptr, 10))) return EXIT_FAILURE;
  return ::write(STDOUT_FILENO, "!", 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
