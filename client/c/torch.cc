#include <dlfcn.h>

#include <string>

#include "client/c/last_error.h"
#include "gpumem/bytes.h"

// PyTorch's CUDAPluggableAllocator treats any returned value as memory, null included, and passes exceptions
// on to Python. So a failure must be an exception. It accepts null for zero bytes and never frees it.
//
// The library has a C++ runtime of its own, which PyTorch's knows nothing of. So the exception is one of the
// process's libstdc++, thrown by it. It passes only through gpumem_torch_alloc, which has nothing to clean
// up.

namespace {

constinit gpumem::c_abi::Complaints not_allocated("gpumem_torch_alloc");
constinit gpumem::c_abi::Complaints not_freed("gpumem_torch_free");

using Throw = void (*)(const char*);

/// The process's function that throws a std::runtime_error; null if it has no libstdc++.so.6.
Throw find_throw() noexcept {
  void* library = ::dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* found = ::dlsym(library, "_ZSt21__throw_runtime_errorPKc");
  ::dlclose(library);  // whoever catches keeps it loaded
  return reinterpret_cast<Throw>(found);
}

/// Makes the thread's last error what the exception says, and returns it.
const char* words_of(gpumem_status status, size_t size, int device) noexcept {
  using gpumem::c_abi::fail;
  (void)gpumem::c_abi::guarded([&] {
    return fail(static_cast<gpumem::Code>(status),
                "gpumem: no " + to_string(gpumem::Bytes{size}) + " on device " + std::to_string(device) +
                    ": " + gpumem_status_name(status) + ": " + gpumem_last_error());
  });
  return gpumem_last_error();
}

/// An allocation's answer: memory, or what is to be thrown and by what.
struct Answer {
  void* memory = nullptr;
  Throw refuse = nullptr;
  const char* words = nullptr;
};

/// Not inlined: whoever throws must have nothing to clean up and no noexcept code in it, because those are
/// handled by the library's own runtime.
[[gnu::noinline]] Answer allocate(size_t size, int device, gpumem_stream stream) noexcept {
  gpumem_allocator* allocator = nullptr;
  gpumem_address address = 0;
  gpumem_status status = gpumem_default_allocator(device, &allocator);
  if (status == GPUMEM_OK) status = gpumem_allocate(allocator, size, stream, &address);
  if (status == GPUMEM_OK) return {.memory = reinterpret_cast<void*>(address)};
  const Throw refuse = find_throw();
  if (refuse == nullptr) return not_allocated.say(status), Answer{};
  return {.refuse = refuse, .words = words_of(status, size, device)};
}

}  // namespace

extern "C" {

void* gpumem_torch_alloc(size_t size, int device, gpumem_stream stream) {
  if (size == 0) return nullptr;
  const Answer answer = allocate(size, device, stream);
  if (answer.refuse != nullptr) answer.refuse(answer.words);
  return answer.memory;
}

void gpumem_torch_free(void* pointer, size_t size, int device, gpumem_stream stream) noexcept {
  if (pointer == nullptr) return;
  gpumem_allocator* allocator = nullptr;
  gpumem_status status = gpumem_default_allocator(device, &allocator);
  if (status == GPUMEM_OK) {
    status = gpumem_deallocate(allocator, reinterpret_cast<gpumem_address>(pointer), size, stream);
  }
  if (status != GPUMEM_OK) not_freed.say(status);
}

}  // extern "C"
