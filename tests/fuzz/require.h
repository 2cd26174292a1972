#pragma once
#include <cstdio>
#include <cstdlib>

namespace gpumem::fuzz {

/// Ends the process with `what`, which does not hold: the fuzzer keeps the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace gpumem::fuzz
