// libc10_cuda.so of PyTorch 2.9.1: it throws, so it has the class's table and type.
#include "tests/integration/c_abi/fake_torch/exception.h"

namespace c10::cuda {

[[noreturn]] void run_out_of_memory();
void run_out_of_memory() {
  throw OutOfMemoryError({"run_out_of_memory", "c10_cuda.cc", 0}, "CUDA out of memory.");
}

}  // namespace c10::cuda
