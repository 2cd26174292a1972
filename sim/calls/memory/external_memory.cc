// Memory of other interfaces: a descriptor of any file stands for it. It takes none of the device's here.
#include <cuda.h>
#include <fcntl.h>

#include "calls.h"
#include "sim/calls/find_object.h"

namespace gpumem::sim {
namespace {

constexpr unsigned kImportFlags = CUDA_EXTERNAL_MEMORY_DEDICATED;

}  // namespace

/// From success on, the descriptor is the driver's.
CUresult api::cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* given) {
  return with_current([&](Call& driver, const Context&) {
    const bool is_whole = out != nullptr && given != nullptr && given->size != 0;
    if (!is_whole || (given->flags & ~kImportFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (given->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
    if (::fcntl(given->handle.fd, F_GETFD) < 0) return CUDA_ERROR_INVALID_VALUE;  // the descriptor is closed
    static std::uint64_t last = 0xb0'0000'0000;  // looks like no host pointer and no small number
    last += 16;
    driver->external.emplace(last, UniqueFd(given->handle.fd));
    *out = handle<CUexternalMemory>(last);
    return CUDA_SUCCESS;
  });
}

CUresult api::cuDestroyExternalMemory(CUexternalMemory named) {
  Call driver;
  if (!driver) return driver.error();
  return driver->external.erase(number(named)) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace gpumem::sim
