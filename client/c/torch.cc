#include <stdexcept>
#include <string>

#include "client/c/last_error.h"
#include "gpumem/bytes.h"

// PyTorch's CUDAPluggableAllocator treats any returned value as memory, null included, and passes exceptions
// on to Python. So a failure must be an exception. It accepts null for zero bytes and never frees it.

namespace {

constinit gpumem::c_abi::Complaints complaints("gpumem_torch_free");

[[noreturn]] void refuse(gpumem_status status, size_t size, int device) {
  throw std::runtime_error("gpumem: no " + to_string(gpumem::Bytes{size}) + " on device " +
                           std::to_string(device) + ": " + gpumem_status_name(status) + ": " +
                           gpumem_last_error());
}

}  // namespace

extern "C" {

void* gpumem_torch_alloc(size_t size, int device, gpumem_stream stream) {
  if (size == 0) return nullptr;
  gpumem_allocator* allocator = nullptr;
  gpumem_address address = 0;
  gpumem_status status = gpumem_default_allocator(device, &allocator);
  if (status == GPUMEM_OK) status = gpumem_allocate(allocator, size, stream, &address);
  if (status != GPUMEM_OK) refuse(status, size, device);
  return reinterpret_cast<void*>(address);
}

void gpumem_torch_free(void* pointer, size_t size, int device, gpumem_stream stream) noexcept {
  if (pointer == nullptr) return;
  gpumem_allocator* allocator = nullptr;
  gpumem_status status = gpumem_default_allocator(device, &allocator);
  if (status == GPUMEM_OK) {
    status = gpumem_deallocate(allocator, reinterpret_cast<gpumem_address>(pointer), size, stream);
  }
  if (status != GPUMEM_OK) complaints.say(status);
}

}  // extern "C"
