// What the trampolines (trampolines.S) jump through.
#include <cstring>

#include "client/shim/real.h"

extern "C" {
/// One for each forwarded call, in the order of their numbers. Filled with the way to gpumem_shim_resolve at
/// first.
[[gnu::visibility("hidden")]] extern const void* gpumem_shim_slots[];
/// Where forwarded call number `index` leads from now on. Called by the trampolines alone.
[[gnu::visibility("hidden")]] const void* gpumem_shim_resolve(unsigned index) noexcept;
/// The version of gpumem that the shim is part of. A library with this name is a shim, not a driver.
const char* gpumem_shim_version();
}

namespace gpumem::shim {
namespace {

constexpr const char* kForwarded[] = {
#define GPUMEM_SHIM_FORWARD(index, name) #name,
#include "forwarded.inc"
#undef GPUMEM_SHIM_FORWARD
};

/// Stands in for a call that there is no real one of, whatever its arguments.
int answer_in_place() { return answer_without_real(); }

const void* stand_in(const char* name) {
  const bool in_words = kOwnLibrary.in_words != nullptr && std::strcmp(name, kOwnLibrary.in_words) == 0;
  return in_words ? reinterpret_cast<const void*>(kOwnLibrary.words)
                  : reinterpret_cast<const void*>(&answer_in_place);
}

}  // namespace
}  // namespace gpumem::shim

const void* gpumem_shim_resolve(unsigned index) noexcept {
  const char* const name = gpumem::shim::kForwarded[index];
  const void* function = gpumem::shim::real_symbol(name);
  if (function == nullptr) function = gpumem::shim::stand_in(name);
  // Threads that come here together store the same.
  __atomic_store_n(&gpumem_shim_slots[index], function, __ATOMIC_RELEASE);
  return function;
}

const char* gpumem_shim_version() { return GPUMEM_SHIM_VERSION; }
