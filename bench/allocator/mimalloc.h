#pragma once
#include <dlfcn.h>

#include <cstdint>

#include "bench/must.h"
#include "gpumem/bytes.h"

namespace gpumem::bench {

/// Host memory of mimalloc's: the yardstick. The library is opened by itself, out of everybody's sight, since
/// one that is linked takes the place of malloc in the whole program, and so under the allocators it is held
/// against.
class Mimalloc {
 public:
  static constexpr const char* kName = "mimalloc";
  std::uint64_t allocate(Bytes bytes, std::uint32_t) {
    return reinterpret_cast<std::uint64_t>(calls_.malloc(bytes.count));
  }
  void deallocate(std::uint64_t address, Bytes, std::uint32_t) {
    calls_.free(reinterpret_cast<void*>(address));
  }

 private:
  struct Calls {
    void* (*malloc)(std::size_t) = nullptr;
    void (*free)(void*) = nullptr;
  };
  static Calls open() {
    void* library = ::dlopen(GPUMEM_MIMALLOC, RTLD_NOW | RTLD_LOCAL);
    require(library != nullptr, "cannot open " GPUMEM_MIMALLOC, "install libmimalloc-dev");
    const Calls calls{reinterpret_cast<void* (*)(std::size_t)>(::dlsym(library, "mi_malloc")),
                      reinterpret_cast<void (*)(void*)>(::dlsym(library, "mi_free"))};
    require(calls.malloc != nullptr && calls.free != nullptr, GPUMEM_MIMALLOC, "has no mi_malloc");
    return calls;
  }

  static inline const Calls calls_ = open();
};

}  // namespace gpumem::bench
