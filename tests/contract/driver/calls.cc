#include "tests/contract/driver/calls.h"

#include <gtest/gtest.h>

#include "cuda/library.h"
#include "tests/contract/driver/fixture.h"

namespace gpumem::contract {
namespace {

struct Resolver {
  CUresult (*with_status)(const char*, void**, int, cuuint64_t, int*) = nullptr;  // CUDA 12 and newer
  CUresult (*plain)(const char*, void**, int, cuuint64_t) = nullptr;
};

Resolver open_resolver() {
  Resolver resolver;
  auto library = cuda::Library::open(driver_folder(), "libcuda.so.1");
  if (!library) {
    ADD_FAILURE() << library.error().message;
    return resolver;
  }
  (void)library->bind(resolver.with_status, "cuGetProcAddress_v2");
  (void)library->bind(resolver.plain, "cuGetProcAddress");
  return resolver;
}

Calls bind_calls() {
  Calls bound;
#define GPUMEM_CONTRACT_BIND(name, version) bound.name = raw<decltype(&::name)>(#name, version);
  GPUMEM_CONTRACT_CALLS(GPUMEM_CONTRACT_BIND)
#undef GPUMEM_CONTRACT_BIND
  bound.create_context = raw<decltype(bound.create_context)>("cuCtxCreate", 3020);
  return bound;
}

}  // namespace

Found find(const char* name, int version, unsigned long long flags) {
  static const Resolver kResolver = open_resolver();
  Found found;
  if (kResolver.with_status != nullptr) {
    found.result = kResolver.with_status(name, &found.address, version, flags, &found.status);
  } else if (kResolver.plain != nullptr) {
    found.result = kResolver.plain(name, &found.address, version, flags);
  }
  if (found.result != CUDA_SUCCESS) found.address = nullptr;
  return found;
}

const Calls& calls() {
  static const Calls kCalls = bind_calls();
  return kCalls;
}

}  // namespace gpumem::contract
