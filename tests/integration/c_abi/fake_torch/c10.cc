// libc10.so: of PyTorch 2.15.0, if GPUMEM_FAKE_TORCH_EXPORTS_ALL is defined, else of PyTorch 2.9.1.
#include "tests/integration/c_abi/fake_torch/exception.h"

namespace c10 {

Error::Error(SourceLocation location, std::string words)
    : words_(std::move(words) + " (" + location.function + ")") {}

#ifdef GPUMEM_FAKE_TORCH_EXPORTS_ALL
OutOfMemoryError::OutOfMemoryError(SourceLocation location, std::string words)
    : Error(location, std::move(words)) {}
#endif

}  // namespace c10
