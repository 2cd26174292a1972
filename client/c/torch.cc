#include "client/c/process_default.h"
#include "client/c/torch_errors.h"
#include "gpumem/bytes.h"

// PyTorch's CUDAPluggableAllocator treats any returned value as memory, null included, and passes exceptions
// on to Python. So a failure must be an exception. It accepts null for zero bytes and never frees it.
// The functions that throw have nothing to clean up, and what they call is not inlined: torch_errors.h.

namespace gpumem::c_abi {
namespace {

constinit FailureLog not_allocated("gpumem_torch_alloc");
constinit FailureLog not_freed("gpumem_torch_free");
constinit FailureLog no_pool("gpumem_torch_begin_allocate_to_pool");
constinit FailureLog not_trimmed("gpumem_torch_reset");
constinit FailureLog not_recorded("gpumem_torch_record_stream");

/// An allocation's answer: memory, or what is to be thrown.
struct Answer {
  void* memory = nullptr;
  Refusal refusal{};
};

[[gnu::noinline]] Answer allocate(size_t size, int device, gpumem_stream stream) noexcept {
  gpumem_address address = 0;
  const gpumem_status status = allocate_from_default(device, size, stream, &address);
  if (status == GPUMEM_OK) return {.memory = reinterpret_cast<void*>(address)};
  return {.refusal = refuse(not_allocated, status, [&] {
            return "no " + to_string(Bytes{size}) + " on device " + std::to_string(device);
          })};
}

/// Memory of others, such as another process's that PyTorch has opened, is none of ours, and its owner sees
/// to it.
[[gnu::noinline]] Refusal record(void* pointer, gpumem_stream stream) noexcept {
  const auto address = reinterpret_cast<gpumem_address>(pointer);
  gpumem_allocator* allocator = process_allocator_of(address);
  if (allocator == nullptr) return {};
  const gpumem_status status = gpumem_record_stream(allocator, address, stream);
  if (status == GPUMEM_OK) return {};
  return refuse(not_recorded, status, [] { return "the stream is not recorded"; });
}

/// A captured graph uses its memory at every launch, so nobody else may have it until the pool is released.
[[gnu::noinline]] Refusal refuse_pool(int device) noexcept {
  (void)fail(
      Code::kFailedPrecondition,
      "gpumem keeps no memory apart for CUDA graphs and torch.cuda.use_mem_pool, which would share it with "
      "other tensors");
  return refuse(no_pool, GPUMEM_FAILED_PRECONDITION,
                [&] { return "no private memory pool on device " + std::to_string(device); });
}

}  // namespace
}  // namespace gpumem::c_abi

extern "C" {

void* gpumem_torch_alloc(size_t size, int device, gpumem_stream stream) {
  if (size == 0) return nullptr;
  const gpumem::c_abi::Answer answer = gpumem::c_abi::allocate(size, device, stream);
  answer.refusal.raise();
  return answer.memory;
}

void gpumem_torch_free(void* pointer, size_t size, int device, gpumem_stream stream) noexcept {
  if (pointer == nullptr) return;
  gpumem_allocator* allocator = nullptr;
  gpumem_status status = gpumem_default_allocator(device, &allocator);
  if (status == GPUMEM_OK) {
    status = gpumem_deallocate(allocator, reinterpret_cast<gpumem_address>(pointer), size, stream);
  }
  if (status != GPUMEM_OK) gpumem::c_abi::not_freed.report(status);
}

void gpumem_torch_record_stream(void* pointer, gpumem_stream stream) {
  if (pointer != nullptr) gpumem::c_abi::record(pointer, stream).raise();
}

void gpumem_torch_begin_allocate_to_pool(int device, uint64_t, uint64_t, const void*) {
  gpumem::c_abi::refuse_pool(device).raise();
}

void gpumem_torch_reset(void) noexcept {
  for (gpumem_allocator* allocator : gpumem::c_abi::process_allocators()) {
    const gpumem_status status = gpumem_allocator_trim(allocator, GPUMEM_UNKNOWN_SIZE, nullptr);
    if (status != GPUMEM_OK) gpumem::c_abi::not_trimmed.report(status);
  }
}

}  // extern "C"
