#include "client/c/handles.h"
#include "client/c/last_error.h"
#include "client/c/process_default.h"
#include "client/c/streams.h"

// CuPy's CFunctionAllocator names no stream, may free a block while earlier work of any stream still uses it,
// and treats any returned value as memory. So each block is handed out behind a mark in the legacy default
// stream, which no work of a blocking stream can overtake.

namespace gpumem::c_abi {
namespace {

constinit FailureLog malloc_failures("gpumem_cupy_malloc");
constinit FailureLog free_failures("gpumem_cupy_free");

/// The allocator that `param` names.
/// Errors  as gpumem_default_allocator; kInvalidArgument: it belongs to another device.
gpumem_status find(void* param, int device, gpumem_allocator** allocator) {
  if (param == nullptr) return gpumem_default_allocator(device, allocator);
  *allocator = static_cast<gpumem_allocator*>(param);
  if ((*allocator)->ordinal == device) return GPUMEM_OK;
  return fail(Code::kInvalidArgument, "the allocator is of device " + std::to_string((*allocator)->ordinal) +
                                          ", and CuPy asks for memory of device " + std::to_string(device));
}

gpumem_status take(void* param, size_t size, int device, gpumem_address* address) {
  if (param == nullptr) return allocate_from_default(device, size, nullptr, address);
  gpumem_allocator* allocator = nullptr;
  if (const gpumem_status found = find(param, device, &allocator); found != GPUMEM_OK) return found;
  return gpumem_allocate(allocator, size, nullptr, address);
}

gpumem_status allocate(void* param, size_t size, int device, gpumem_address* address) {
  if (const gpumem_status got = take(param, size, device, address); got != GPUMEM_OK) return got;
  const auto marked = barrier(device);
  if (marked) return GPUMEM_OK;
  gpumem_allocator* allocator = nullptr;
  if (find(param, device, &allocator) == GPUMEM_OK)
    (void)gpumem_deallocate(allocator, *address, size, nullptr);
  return fail(marked.error());
}

gpumem_status free(void* param, gpumem_address address, int device) {
  gpumem_allocator* allocator = nullptr;
  if (const gpumem_status found = find(param, device, &allocator); found != GPUMEM_OK) return found;
  return gpumem_deallocate(allocator, address, GPUMEM_UNKNOWN_SIZE, nullptr);
}

}  // namespace
}  // namespace gpumem::c_abi

extern "C" {

void* gpumem_cupy_malloc(void* param, size_t size, int device) noexcept {
  if (size == 0) return nullptr;
  gpumem_address address = 0;
  const gpumem_status status =
      gpumem::c_abi::guarded([&] { return gpumem::c_abi::allocate(param, size, device, &address); });
  if (status == GPUMEM_OK) return reinterpret_cast<void*>(address);
  gpumem::c_abi::malloc_failures.report(status);
  return nullptr;
}

void gpumem_cupy_free(void* param, void* pointer, int device) noexcept {
  if (pointer == nullptr) return;
  const gpumem_status status = gpumem::c_abi::guarded(
      [&] { return gpumem::c_abi::free(param, reinterpret_cast<gpumem_address>(pointer), device); });
  if (status != GPUMEM_OK) gpumem::c_abi::free_failures.report(status);
}

}  // extern "C"
