// The shim as libcuda.so.1.
#include <cuda.h>

#include "client/shim/own_library.h"

namespace gpumem::shim {

// Without a driver every call says that there is no GPU. Programs that can do without one then do, as they do
// where no libcuda.so.1 is installed; CUDA_ERROR_STUB_LIBRARY would tell them of a broken installation.
//
// 36 is CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, which older headers lack. With an older driver alone the call
// would be a missing symbol.
constinit const OwnLibrary kOwnLibrary{.file = "libcuda.so.1",
                                       .without_driver = CUDA_ERROR_NO_DEVICE,
                                       .without_call = 36,
                                       .in_words = nullptr,
                                       .words = nullptr};

}  // namespace gpumem::shim
