#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/structs.h"

// CuPy's CFunctionAllocator makes no object of Python's for a block but CuPy's own, and calls under Python's
// lock.

namespace gpumem::c_abi {
namespace {

constinit FailureLog free_failures("gpumem_cupy_free");

/// A block that is free now, or zero.
gpumem_address take(const gpumem_cupy_stream& from, Bytes bytes) {
  allocator::Engine& engine = from.allocator->engine;
  gpumem_address address = engine.try_allocate(bytes, from.stream);
  if (address != 0) return address;
  (void)guarded([&] {
    if (const auto taken = engine.allocate(bytes, from.stream, {}, {.wait = {}, .is_at_once = true}))
      address = *taken;
    return GPUMEM_OK;
  });
  return address;
}

}  // namespace
}  // namespace gpumem::c_abi

extern "C" {

void* gpumem_cupy_malloc(void* param, size_t size, int device) noexcept {
  const auto* const from = static_cast<const gpumem_cupy_stream*>(param);
  if (size == 0 || from == nullptr || from->allocator == nullptr || from->allocator->ordinal != device)
    return nullptr;
  const gpumem_address address = gpumem::c_abi::take(*from, {size});
  if (address != 0 && from->retain != nullptr) from->retain(from->owner);
  return reinterpret_cast<void*>(address);
}

void gpumem_cupy_free(void* param, void* pointer, int /*device*/) noexcept {
  if (pointer == nullptr || param == nullptr) return;
  const auto* const from = static_cast<const gpumem_cupy_stream*>(param);
  const gpumem_status status = gpumem_deallocate(from->allocator, reinterpret_cast<gpumem_address>(pointer),
                                                 GPUMEM_UNKNOWN_SIZE, from->stream);
  if (status != GPUMEM_OK && status != GPUMEM_FAILED_PRECONDITION)
    gpumem::c_abi::free_failures.report(status);
  if (from->release != nullptr) from->release(from->owner);  // the struct may go with its owner
}

}  // extern "C"
